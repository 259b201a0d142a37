// Typed errors of the core. module.cpp turns each into the class of the same name in tenure.errors.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tenure {

enum class Kind { Token, Config, Capacity, Quota, Budget, StaleHandle, ForeignHandle, State, Integrity, Policy, Reentrancy };

struct Error : std::runtime_error {
  using Numbers = std::vector<std::pair<const char*, double>>;
  Error(Kind kind, const std::string& what, Numbers numbers = {})
      : std::runtime_error(what), kind(kind), numbers(std::move(numbers)) {}
  Kind kind;
  Numbers numbers;  // what explains the refusal, by name
};

}  // namespace tenure
