"""All blocks a worker offers: the built-in ones, those of the user's modules and of installed packages.

It answers where a block comes from (a child process must import the same) and refuses two blocks of one
name and version. It must not know how blocks are run.
"""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import sys
import traceback
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.core.errors import BadBlock, BlockModule, Refused
from holdfast.core.model import BlockOffer, Problem
from holdfast.core.versions import order

from .declare import Block

AnyBlock = Block[..., Any]

_BUILT_IN = (
    "holdfast.blocks.shell",
    "holdfast.blocks.ssh",
    "holdfast.blocks.http",
    "holdfast.blocks.load",
    "holdfast.blocks.testing",
)
_ENTRY_POINTS = "holdfast.blocks"
_FILE_PREFIX = "holdfast_file_"


class Registry:
    """Blocks by name and version. Empty but for the built-in ones until something is added or discovered."""

    def __init__(self, blocks: Iterable[AnyBlock] = (), *, built_in: bool = True) -> None:
        self._blocks: dict[tuple[str, str], AnyBlock] = {}
        self._newest: dict[str, AnyBlock] = {}
        self._sources: dict[str, None] = {}
        if built_in:
            for name in _BUILT_IN:
                self._collect(importlib.import_module(name))
        for block in blocks:
            self.add(block)

    @property
    def sources(self) -> list[str]:
        """Modules and files that, imported elsewhere, give the same blocks (the built-in ones aside)."""
        return list(self._sources)

    def add(self, block: AnyBlock) -> None:
        """Add one block, from a module that was imported anyway."""
        isolated = any(routine.isolation == "process" for routine in block.routines.values())
        if isolated and "<locals>" in block.function.__qualname__:
            raise BadBlock(
                f"block `{block.name}` is defined inside a function ({block.file}:{block.line}), so a child "
                f'process cannot import it; move it to module level or declare isolation="thread"'
            )
        self._put(block)
        source = _source(block)
        if source:
            self._sources.setdefault(source)

    def get(self, name: str, version: str = "") -> AnyBlock | None:
        """That version of a block; the newest where none is said."""
        return self._blocks.get((name, version)) if version else self._newest.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._newest

    def __iter__(self) -> Iterator[AnyBlock]:
        return iter(self._blocks.values())

    def __len__(self) -> int:
        return len(self._blocks)

    def offers(self) -> list[BlockOffer]:
        return [block.offer for block in self._blocks.values()]

    def discover(self, modules: Iterable[str]) -> list[AnyBlock]:
        """Import modules, by dotted name or path of a `.py` file, and add the blocks found in them."""
        found: list[AnyBlock] = []
        for name in modules:
            # Before the import, so that a file found by a relative path is found by a child elsewhere too.
            source = str(Path(name).resolve()) if _is_path(name) else name
            found += self._collect(_import(name))
            self._sources.setdefault(source)
        return found

    def discover_installed(self) -> list[AnyBlock]:
        """Blocks that installed packages announce under the entry point group `holdfast.blocks`."""
        from importlib.metadata import entry_points  # reads every package's metadata: only when asked

        return self.discover(sorted({entry.module for entry in entry_points(group=_ENTRY_POINTS)}))

    def _collect(self, module: ModuleType) -> list[AnyBlock]:
        found = [value for value in vars(module).values() if isinstance(value, Block)]
        for block in found:
            self._put(block)
        return found

    def _put(self, block: AnyBlock) -> None:
        key = (block.name, block.offer.version)
        other = self._blocks.get(key)
        # The same lines imported under two module names are one declaration.
        if other is not None and (other.file, other.line) != (block.file, block.line):
            message = (
                f"two blocks are called `{block.name}`: {other.file}:{other.line} and "
                f"{block.file}:{block.line}; give one of them another name or version with @block(name=...)"
            )
            problem = Problem(code=BadBlock.code, message=message, file=block.file, line=block.line)
            raise BadBlock(message, (problem,))
        if other is None:
            self._blocks[key] = block
            newest = self._newest.get(block.name)
            if newest is None or order(block.offer.version) > order(newest.offer.version):
                self._newest[block.name] = block


def _is_path(name: str) -> bool:
    return name.endswith(".py") or "/" in name


def _source(block: AnyBlock) -> str:
    """How another process can import the module of a block; empty for built-in ones."""
    module = sys.modules.get(block.function.__module__)
    if block.function.__module__ in _BUILT_IN:
        return ""
    if module is not None and module.__name__ != "__main__" and not module.__name__.startswith(_FILE_PREFIX):
        return module.__name__
    return str(Path(block.file).resolve())


def _import(name: str) -> ModuleType:
    try:
        return _load_file(Path(name).resolve()) if _is_path(name) else importlib.import_module(name)
    except Refused:
        raise  # a bad declaration says itself where it stands
    except (Exception, SystemExit) as error:
        raise _not_imported(name, error) from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(path):
            return module
    # After everything else: siblings can be imported, but `http.py` of the user hides nobody's `http`.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    name = f"{_FILE_PREFIX}{path.stem}_{blake2b(str(path).encode(), digest_size=4).hexdigest()}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and type hints look their module up while it is executed
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _not_imported(name: str, error: BaseException) -> BlockModule:
    file, line, source = _where(error)
    what = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
    at = f" ({file}:{line})" if file else ""
    help_text = ""
    if isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]:
        help_text = "give a path to a .py file, or run where the module can be imported"
    problem = Problem(code=BlockModule.code, message=what, file=file, line=line, source=source, help=help_text)
    tail = f"; {help_text}" if help_text else ""
    return BlockModule(f"cannot import `{name}`: {what}{at}{tail}", (problem,))


def _where(error: BaseException) -> tuple[str, int, str]:
    """The innermost place in the user's own code; failing that, the innermost place."""
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno or 0, (error.text or "").rstrip("\n")
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in (__file__, importlib.__file__) and not frame.filename.startswith("<frozen")
    ]
    library = str(Path(linecache.__file__).parent)
    own = [f for f in frames if not f.filename.startswith(library) and "site-packages" not in f.filename]
    for frame in reversed(own or frames):
        line = frame.lineno or 0
        return frame.filename, line, linecache.getline(frame.filename, line).rstrip("\n")
    return "", 0, ""
