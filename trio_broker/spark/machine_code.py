"""Functions as machine code, by numba, compiled once for each user, processor and version of the code.

``compiled`` compiles a function when its module is imported, or loads it from ``code_cache``. Its file there is named
by a digest of all that decides the machine code: the function's bytecode, that of every function and the value of each
constant that it refers to, directly or through others, the signature, the processor for which numba compiles, and the
versions of Python, numba and llvmlite. numba's own cache finds a function by the path of its source file, so that what
an archive holds is compiled again wherever it is unpacked, and does not notice a change of what the function refers to.

Of several processes that need a function at the same time one compiles it, and the others wait. A file that cannot be
used is treated as one that is not there.

Source: numba.core.caching, numba.core.dispatcher; docs/decisions/0058.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import llvmlite
import numba
import numpy as np
from numba.core import config
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from trio_broker.spark.code_cache import CodeCache, user_cache

log = logging.getLogger(__name__)

LIBRARIES: Final = ("numba", "llvmlite", "numpy")
"""What a function of theirs does is known by their versions."""


def compiled(
    signature: Any, *, cache: CodeCache | None = None, **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function for ``signature`` now, or load it from the cache, that of the user unless another is given.

    ``options`` are numba's. The result releases Python's lock while it runs.
    """

    def compile_now(function: Callable[..., Any]) -> Callable[..., Any]:
        dispatcher: Any = numba.njit(nogil=True, **options)(function)
        kept = KeptFunction(dispatcher, signature, cache or user_cache())
        with kept.read():
            dispatcher._cache = kept
            dispatcher.compile(signature)
        dispatcher.disable_compile()
        machine_code: Callable[..., Any] = dispatcher
        return machine_code

    return compile_now


class KeptFunction(NullCache):  # type: ignore[misc]
    """The file of one function, by the interface of numba's caches."""

    def __init__(self, dispatcher: Any, signature: Any, cache: CodeCache) -> None:
        self._cache = cache
        self._function = dispatcher.py_func.__name__
        self._name = f"{self._function}-{digest_of(dispatcher, signature)}.machine-code"
        self._content: bytes | None = None

    @contextmanager
    def read(self) -> Iterator[None]:
        """Have the file's content in the block. If there is none, no other process compiles the function meanwhile."""
        with ExitStack() as stack:
            self._content = self._cache.read(self._name)
            if self._content is None:
                stack.enter_context(self._cache.lock(self._function))
                # Another process may have compiled it while this one waited.
                self._content = self._cache.read(self._name)
            yield
            self._content = None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function, or None."""
        if self._content is None:
            return None
        target_context.refresh()
        try:
            return CompileResult._rebuild(target_context, *pickle.loads(self._content))
        except Exception as error:  # whatever it is, compiling takes its place
            log.warning("%s in the cache cannot be used: %r", self._name, error)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a function that was compiled."""
        self._cache.write(self._name, dumps(data._reduce()))


def digest_of(dispatcher: Any, signature: Any) -> str:
    """Return the digest of all that decides the machine code of a function."""
    digest = hashlib.sha256()
    processor = dispatcher.targetctx.codegen().magic_tuple()
    versions = (sys.implementation.cache_tag, numba.__version__, llvmlite.__version__, np.__version__)
    for part in (versions, processor, (config.CPU_NAME, config.CPU_FEATURES), config.OPT, str(signature)):
        digest.update(f"{part!r}\n".encode())
    for part in described(dispatcher, set()):
        digest.update(f"{part}\n".encode())
    return digest.hexdigest()[:32]


def described(value: Any, seen: set[int]) -> Iterator[str]:
    """Yield texts that differ wherever machine code made of ``value`` may differ, and are the same in each process.

    ``seen`` has the functions that were described already.
    """
    yield str(getattr(value, "targetoptions", ""))
    value = getattr(value, "__wrapped__", value)
    if isinstance(value, FunctionType):
        if value.__module__.partition(".")[0] not in LIBRARIES and id(value) not in seen:
            seen.add(id(value))
            yield from _described_function(value, seen)
        else:
            yield value.__qualname__
    elif isinstance(value, ModuleType | type):
        yield value.__name__
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape} {value.tobytes().hex()}"
    else:
        yield repr(value)


def _described_function(function: FunctionType, seen: set[int]) -> Iterator[str]:
    yield function.__qualname__
    names: set[str] = set()
    for code in _codes(function.__code__):
        constants = [each for each in code.co_consts if not isinstance(each, CodeType)]
        yield f"{code.co_code.hex()} {code.co_names} {constants}"
        names.update(code.co_names)
    for cell in function.__closure__ or ():
        yield from described(cell.cell_contents, seen)
    for name in sorted(names & function.__globals__.keys()):
        yield name
        yield from described(function.__globals__[name], seen)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)
