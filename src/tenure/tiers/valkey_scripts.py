"""What a Valkey server does in one step for the pool, in its own language; each script names its keys and arguments.
Sent whole with each call, so that no server has to know them before; `allow-oom`: ending things must work when memory is full."""

from __future__ import annotations

__all__ = ["BUMP", "COMMIT", "DELETE", "DISCARD", "ENSURE", "ENTRIES", "EXTEND", "RAISE", "SET"]

_START = b"#!lua flags=allow-oom\n"

COMMIT = (
    _START
    + b"""
-- KEYS: the head, then what was written under the claim. ARGV: the claim, the block's head, its milliseconds, then the lengths of
-- what was written. 1 when the block is committed; else what stands at its head, and all that was written is gone.
local stands = redis.call('GET', KEYS[1])
local whole = stands == ARGV[1]
for i = 2, #KEYS do
  whole = whole and redis.call('STRLEN', KEYS[i]) == tonumber(ARGV[i + 2])
end
if whole then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  for i = 2, #KEYS do redis.call('PEXPIRE', KEYS[i], ARGV[3] + 1000) end
  return 1
end
for i = 2, #KEYS do redis.call('UNLINK', KEYS[i]) end
if stands == ARGV[1] then redis.call('UNLINK', KEYS[1]) end
return stands or ''
"""
)

_PARTS = b"""
local function parts(key, stands)
  local token, payload, chunk = string.match(stands, '^block (%S+) %d+ (%d+) (%d+) %d+$')
  if not token or chunk ~= '0' and payload / chunk > 1024 then return nil end
  if chunk == '0' then return {} end
  local stem = string.sub(key, 1, -2) .. 'd' .. token .. ':'
  local names = {}
  for i = 0, math.max(1, math.ceil(payload / chunk)) - 1 do names[i + 1] = stem .. i end
  return names
end
"""

EXTEND = (
    _START
    + _PARTS
    + b"""
-- KEYS: a head. ARGV: milliseconds. 1 when the block is there whole, and stays as long if its content does.
local stands = redis.call('GET', KEYS[1])
local expires = stands and string.match(stands, '^block %S+ %d+ %d+ %d+ (%d+)$')
if not expires then return 0 end
local time = redis.call('TIME')
local left = tonumber(ARGV[1])
if expires ~= '0' then left = math.min(left, math.floor(expires - (time[1] * 1000 + time[2] / 1000))) end
if left <= 0 then return 0 end
local names = parts(KEYS[1], stands)
if not names then return 0 end
for _, name in ipairs(names) do
  if redis.call('EXISTS', name) == 0 then return 0 end
end
redis.call('PEXPIRE', KEYS[1], left, 'GT')
for _, name in ipairs(names) do redis.call('PEXPIRE', name, left + 1000, 'GT') end
return 1
"""
)

DISCARD = (
    _START
    + _PARTS
    + b"""
-- KEYS: a head. ARGV: a token. Takes out the claim or the block with this token, and nothing else.
local stands = redis.call('GET', KEYS[1])
if not stands or string.match(stands, '^%l+ (%S+) ') ~= ARGV[1] then return 0 end
for _, name in ipairs(parts(KEYS[1], stands) or {}) do redis.call('UNLINK', name) end
return redis.call('UNLINK', KEYS[1])
"""
)

_VALUES = b"""
-- KEYS: families. Integers below 2^53 are exact in Lua; anything else that stands there counts as nothing.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local values = {}
local function value(key)
  local stands = redis.call('GET', key)
  local number = stands and string.match(stands, '^%d+$') and tonumber(stands)
  return number and number < 2 ^ 53 - 1 and number or nil
end
local function set(i, wanted)
  redis.call('SET', KEYS[i], string.format('%.0f', wanted))
  values[i] = wanted
end
"""

BUMP = _START + _VALUES + b"for i, key in ipairs(KEYS) do set(i, math.max((value(key) or 0) + 1, now)) end return values"
ENSURE = (
    _START
    + _VALUES
    + b"for i, key in ipairs(KEYS) do values[i] = value(key) if not values[i] then set(i, now) end end return values"
)
RAISE = (
    _START
    + _VALUES
    + b"""
-- ARGV: a value for each.
for i, key in ipairs(KEYS) do
  values[i] = value(key)
  if not values[i] or values[i] < tonumber(ARGV[i]) then set(i, tonumber(ARGV[i])) end
end
return values
"""
)

SET = (
    _START
    + b"""
-- KEYS: an entry, the set of all names. ARGV: its name, its value, milliseconds or 0, then 'any', or 'none', or 'is' and the
-- value that has to stand there. 1 when it is set.
local stands = redis.call('GET', KEYS[1])
if ARGV[4] == 'none' and stands or ARGV[4] == 'is' and stands ~= ARGV[5] then return 0 end
if ARGV[3] == '0' then redis.call('SET', KEYS[1], ARGV[2]) else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
redis.call('SADD', KEYS[2], ARGV[1])
return 1
"""
)

DELETE = (
    _START
    + b"""
-- KEYS: an entry, the set of all names. ARGV: its name. 1 when it was there.
redis.call('SREM', KEYS[2], ARGV[1])
return redis.call('UNLINK', KEYS[1])
"""
)

ENTRIES = (
    _START
    + b"""
-- KEYS: the set of all names. ARGV: how they begin. Of entries that are there the name and the value; the others are forgotten.
local found = {}
for _, name in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  if string.sub(name, 1, #ARGV[1]) == ARGV[1] then
    local value = redis.call('GET', KEYS[1] .. ':' .. name)
    if value then
      found[#found + 1] = name
      found[#found + 1] = value
    else
      redis.call('SREM', KEYS[1], name)
    end
  end
end
return found
"""
)
