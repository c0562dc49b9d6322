"""comgr: AMD's code object manager as a second assembler, for LLVM IR and for HIP C.

In       LLVM IR (text or bitcode) or HIP C source, an AMD architecture such as gfx90a
Out      an ELF object: relocatable, as llvm_gpu.py makes it, or linked into a shared one
Changes  opens libamd_comgr at the first call; comgr itself writes temporary files while it compiles
Next     llvm_gpu.py (the first assembler, with no ROCm), ../codegen.py (`assemble_with` chooses this one for a target)
Source   amd_comgr.h: actions, data kinds and languages; their numbers changed between versions 2 and 3

comgr is another LLVM, built by another vendor: kernels that both assemble are a second opinion on our text, and it
alone compiles HIP C. It knows the architectures of its release: Debian 12's 2.4 (LLVM 15) has gfx90a and no gfx11. It
works inside this process, as llvmlite does, and its release does not verify IR: a module that is well written but wrong
can end the process. So the IR given to it should be of the renderer, of clang, or verified.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hcq.compiler.assemble.llvm_cpu import AssembleError
from hcq.compiler.target import Target

TRIPLE = "amdgcn-amd-amdhsa"
NAMES = ("libamd_comgr.so.3", "libamd_comgr.so.2")
INSTALL = "Install it: apt install libamd-comgr2 (Debian, Ubuntu), or take ROCm's."
OPTIONS = ("-O2",)
# seen with Debian 12's 2.4: illegal instruction in a pass over machine code, for a loop around such a copy
COPY, ENDS_AT_COPIES = "llvm.amdgcn.global.load.lds", (2, 4)
HIP_OPTIONS = ("-O2", "-std=c++17", "-nogpuinc", "-nogpulib")
ARCHITECTURE = re.compile(r"gfx[0-9a-f]+(?::(?:sramecc|xnack)[+-])*")

# one number in all lanes, and a vector's type before it in the line
_SPLAT = re.compile(r"splat \(([^()]*)\)")
_VECTOR = re.compile(r"<(\d+) x ")
# a pointer with its alignment, in a call; what follows it there; the pointer in a declaration
_MASKED = re.compile(
    r"(call [^\n]*@llvm\.masked\.[^\n]*?)(ptr(?: addrspace\(\d\))?) align (\d+) (%[\w.]+)(,[^\n]*)"
)
_DECLARED = re.compile(
    r"(declare [^\n]*@llvm\.masked\.[^\n(]*)\(((?:[^\n(]*, )?ptr(?: addrspace\(\d\))?)(,[^\n]*)"
)

DECLARATIONS = """
typedef int amd_comgr_status_t;
typedef struct { uint64_t handle; } amd_comgr_data_t;
typedef struct { uint64_t handle; } amd_comgr_data_set_t;
typedef struct { uint64_t handle; } amd_comgr_action_info_t;
void amd_comgr_get_version(size_t *major, size_t *minor);
amd_comgr_status_t amd_comgr_status_string(amd_comgr_status_t status, const char **text);
amd_comgr_status_t amd_comgr_get_isa_count(size_t *count);
amd_comgr_status_t amd_comgr_get_isa_name(size_t index, const char **name);
amd_comgr_status_t amd_comgr_create_data(int kind, amd_comgr_data_t *data);
amd_comgr_status_t amd_comgr_release_data(amd_comgr_data_t data);
amd_comgr_status_t amd_comgr_set_data(amd_comgr_data_t data, size_t size, const char *bytes);
amd_comgr_status_t amd_comgr_set_data_name(amd_comgr_data_t data, const char *name);
amd_comgr_status_t amd_comgr_get_data(amd_comgr_data_t data, size_t *size, char *bytes);
amd_comgr_status_t amd_comgr_create_data_set(amd_comgr_data_set_t *set);
amd_comgr_status_t amd_comgr_destroy_data_set(amd_comgr_data_set_t set);
amd_comgr_status_t amd_comgr_data_set_add(amd_comgr_data_set_t set, amd_comgr_data_t data);
amd_comgr_status_t amd_comgr_action_data_count(amd_comgr_data_set_t set, int kind, size_t *count);
amd_comgr_status_t amd_comgr_action_data_get_data(
    amd_comgr_data_set_t set, int kind, size_t index, amd_comgr_data_t *data);
amd_comgr_status_t amd_comgr_create_action_info(amd_comgr_action_info_t *info);
amd_comgr_status_t amd_comgr_destroy_action_info(amd_comgr_action_info_t info);
amd_comgr_status_t amd_comgr_action_info_set_isa_name(amd_comgr_action_info_t info, const char *name);
amd_comgr_status_t amd_comgr_action_info_set_language(amd_comgr_action_info_t info, int language);
amd_comgr_status_t amd_comgr_action_info_set_option_list(
    amd_comgr_action_info_t info, const char **options, size_t count);
amd_comgr_status_t amd_comgr_action_info_set_logging(amd_comgr_action_info_t info, bool logging);
amd_comgr_status_t amd_comgr_do_action(
    int kind, amd_comgr_action_info_t info, amd_comgr_data_set_t input, amd_comgr_data_set_t result);
"""

# data kinds, the same in every version
SOURCE, LOG, BITCODE, RELOCATABLE, EXECUTABLE = 1, 5, 6, 7, 8
NO_LANGUAGE = 0
EM_AMDGPU = 224


class ComgrError(AssembleError):
    """comgr is missing, does not know the architecture, or refused its input: the message has its log."""


class Numbers(NamedTuple):
    """Those of amd_comgr.h that depend on the major version."""

    hip: int
    source_to_bitcode: int
    bitcode_to_relocatable: int
    relocatable_to_executable: int
    relocatable_to_source: int | None
    assembly_to_relocatable: int


NUMBERS = {2: Numbers(4, 2, 6, 9, 11, 10), 3: Numbers(3, 2, 4, 7, None, 8)}


class Library(NamedTuple):
    """An opened comgr: cffi's reader of types, the functions, and what it says about itself."""

    path: str
    ffi: Any
    functions: Any
    version: tuple[int, int]
    numbers: Numbers

    def __str__(self) -> str:
        return f"comgr {self.version[0]}.{self.version[1]} ({self.path})"


# ------------------------------------------------------------ what others call


def available() -> bool:
    """Whether a comgr that we can speak to opens here."""
    try:
        library()
    except ComgrError:
        return False
    return True


def check(arch: str) -> tuple[int, int]:
    """Its interface's version (2.4 came with ROCm 5.2), if it compiles for an architecture. Raises ComgrError."""
    _isa(arch)
    return library().version


@cache
def architectures() -> tuple[str, ...]:
    """The gfx names that it generates code for."""
    comgr = library()
    count, name = comgr.ffi.new("size_t *"), comgr.ffi.new("const char **")
    _call("get_isa_count", count)
    names = []
    for index in range(count[0]):
        _call("get_isa_name", index, name)
        names.append(comgr.ffi.string(name[0]).decode().removeprefix(f"{TRIPLE}--"))
    return tuple(names)


def compile_ir(ir: str | bytes, arch: str, name: str = "kernel", options: Sequence[str] = OPTIONS) -> bytes:
    """A relocatable object of LLVM IR: text, or bitcode.

    arch      gfx90a; gfx90a:xnack- to fix what is otherwise left open; or with its triple, amdgcn-amd-amdhsa--gfx90a
    options   of clang
    Raises    ComgrError with comgr's log
    """
    if isinstance(ir, str):
        head = "" if re.search(r"^\s*target triple\b", ir, re.MULTILINE) else f'target triple = "{TRIPLE}"\n'
        ir = f"{head}{ir}".encode()
    kind = library().numbers.bitcode_to_relocatable
    return _do("compile", kind, [(BITCODE, f"{name}.bc", ir)], RELOCATABLE, arch, name, options)


def compile_hip(source: str, arch: str, name: str = "kernel", options: Sequence[str] = ()) -> bytes:
    """A relocatable object of HIP C: its kernels are `extern "C" __attribute__((global)) void f(...)`.

    No headers of HIP are read, so __global__ and threadIdx are the source's own to define; clang's builtins are there
    (__builtin_amdgcn_workitem_id_x). options come after -O2 -std=c++17. Raises ComgrError with the compiler's messages.
    """
    numbers = library().numbers
    words = (*HIP_OPTIONS, *options)
    given = [(SOURCE, f"{name}.hip", source.encode())]
    bitcode = _do("compile", numbers.source_to_bitcode, given, BITCODE, arch, name, words, numbers.hip)
    return compile_ir(bitcode, arch, name)


def compile_assembly(text: str, arch: str, name: str = "kernel", options: Sequence[str] = ()) -> bytes:
    """A relocatable object of assembly, with kernel descriptors as `.amdhsa_kernel` writes them.

    Raises ComgrError with the assembler's messages
    """
    kind = library().numbers.assembly_to_relocatable
    return _do("assemble", kind, [(SOURCE, f"{name}.s", text.encode())], RELOCATABLE, arch, name, options)


def link(objects: Sequence[bytes], arch: str, name: str = "kernel") -> bytes:
    """One shared object of relocatable ones. Our loader needs no linker; ROCm's runtime takes nothing else.

    Raises ComgrError where there are none, where comgr is missing, and with its complaint.
    """
    if not objects:
        raise ComgrError(f"comgr: link({name!r}) was given no objects; pass at least one relocatable object.")
    given = [(RELOCATABLE, f"{name}.{index}.o", image) for index, image in enumerate(objects)]
    return _do("link", library().numbers.relocatable_to_executable, given, EXECUTABLE, arch, name, ())


def disassemble(image: bytes, arch: str, name: str = "kernel") -> str:
    """The assembly of an object's code, as LLVM's objdump lists it. Version 2 only; 3 leaves it to objdump itself.

    For objects of a compiler: one that is damaged can end the process. Raises ComgrError for one of another machine,
    for version 3, and where comgr is missing.
    """
    action = library().numbers.relocatable_to_source
    if action is None:
        raise ComgrError(
            f"{library()} no longer disassembles objects: use the llvm-objdump that ROCm has beside it."
        )
    if image[:4] != b"\x7fELF" or int.from_bytes(image[18:20], "little") != EM_AMDGPU:
        raise ComgrError(f"comgr: {name} is no ELF object of an AMD GPU; disassemble what compile_ir made.")
    given = [(RELOCATABLE, f"{name}.o", image)]
    return _do("disassemble", action, given, SOURCE, arch, name, ()).decode()


def assemble(text: str, target: Target, name: str) -> bytes:
    """What llvm_gpu.assemble does, by comgr. Raises ComgrError, also for what ends the process in an old one."""
    found = library()
    if COPY in text and found.version <= ENDS_AT_COPIES:
        raise ComgrError(
            f"{found}: {name} for {target.arch} copies to LDS by {COPY}, at which LLVM 15 ends the process; "
            "pipeline with 2 tiles, or take the assembler llvmlite."
        )
    return compile_ir(_old_splats(_old_masks(text)), target.arch, name)


def _old_splats(text: str) -> str:
    """One number in all lanes, which LLVM writes in a word since 18, lane by lane."""
    return "".join(
        [_old_splat(line) if "splat (" in line else line for line in text.splitlines(keepends=True)]
    )


def _old_splat(line: str) -> str:
    vector = _VECTOR.search(line)
    lanes = int(vector[1]) if vector else 1
    return _SPLAT.sub(lambda one: f"<{', '.join([one[1]] * lanes)}>", line)


def _old_masks(text: str) -> str:
    """Masked accesses as LLVM before 22 declares them, the alignment an argument of its own; newer ones read both.

    An LLVM that meets the other form does not complain, it crashes.
    """
    text = _MASKED.sub(r"\1\2 \4, i32 \3\5", text)
    return _DECLARED.sub(lambda found: f"{found[1]}({found[2]}, i32{found[3]}", text)


# ------------------------------------------------------------ finding it


def _places() -> Iterator[str]:
    """Where ROCm puts it, the newest first; then by name, as the system's loader finds it."""
    folders = [Path("/opt/rocm/lib"), *sorted(Path("/opt").glob("rocm-*/lib"), key=_release, reverse=True)]
    yield from (str(folder / name) for folder in folders for name in NAMES if (folder / name).exists())
    yield from NAMES


def _release(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder.parent.name)]


@cache
def library() -> Library:
    """comgr, opened once. Raises ComgrError that says how to get it."""
    import cffi

    ffi = cffi.FFI()
    ffi.cdef(DECLARATIONS)
    problems = []
    for path in _places():
        try:
            functions = ffi.dlopen(path)
        except OSError as problem:
            problems.append(
                str(problem).removeprefix(f"cannot load library '{path}': ").partition(".  Ad")[0]
            )
            continue
        major, minor = ffi.new("size_t *"), ffi.new("size_t *")
        functions.amd_comgr_get_version(major, minor)
        if major[0] in NUMBERS:
            return Library(path, ffi, functions, (int(major[0]), int(minor[0])), NUMBERS[major[0]])
        problems.append(f"{path} has version {major[0]}.{minor[0]}; 2 and 3 are known")
    raise ComgrError(f"comgr: no AMD code object manager opens here ({'; '.join(problems)}). {INSTALL}")


# ------------------------------------------------------------ one action


def _call(function: str, *arguments: Any) -> None:
    """A function of comgr, its status checked."""
    comgr = library()
    status = getattr(comgr.functions, f"amd_comgr_{function}")(*arguments)
    if status:
        raise ComgrError(f"{comgr}: amd_comgr_{function} -> {_word(status)}")


def _word(status: int) -> str:
    comgr = library()
    text = comgr.ffi.new("const char **")
    if comgr.functions.amd_comgr_status_string(status, text):
        return f"status {status}, which it has no name for"
    return f"{comgr.ffi.string(text[0]).decode()} ({status})"


def _isa(arch: str) -> str:
    """comgr's name of an architecture. Raises ComgrError listing those that it knows."""
    short = arch.removeprefix(f"{TRIPLE}--")
    if not ARCHITECTURE.fullmatch(short):
        raise ComgrError(
            f"comgr: arch={arch!r} is no architecture. Write gfx90a, or {TRIPLE}--gfx90a:xnack-."
        )
    if short.partition(":")[0] not in architectures():
        raise ComgrError(
            f"{library()} generates no code for {short}; it knows {', '.join(architectures())}. "
            "A newer ROCm may, and llvmlite, the default assembler, does."
        )
    return f"{TRIPLE}--{short}"


@contextmanager
def _made(kind: str, *arguments: Any) -> Iterator[Any]:
    """A handle of comgr, given back at the end."""
    comgr = library()
    handle = comgr.ffi.new(f"amd_comgr_{kind}_t *")
    _call(f"create_{kind}", *arguments, handle)
    try:
        yield handle[0]
    finally:
        _call(f"{'release' if kind == 'data' else 'destroy'}_{kind}", handle[0])


def _do(
    verb: str,
    action: int,
    given: Sequence[tuple[int, str, bytes]],
    wanted: int,
    arch: str,
    name: str,
    options: Sequence[str],
    language: int = NO_LANGUAGE,
) -> bytes:
    """Data of a kind, name and content in; the one result of the kind wanted out."""
    comgr, isa = library(), _isa(arch)
    words = [comgr.ffi.new("char[]", option.encode()) for option in options]
    with _made("data_set") as inputs, _made("data_set") as results, _made("action_info") as info:
        for kind, file, content in given:
            with _made("data", kind) as data:  # the set keeps its own reference
                _call("set_data", data, len(content), content)
                _call("set_data_name", data, file.encode())
                _call("data_set_add", inputs, data)
        _call("action_info_set_isa_name", info, isa.encode())
        _call("action_info_set_language", info, language)
        _call("action_info_set_option_list", info, comgr.ffi.new("const char *[]", words), len(words))
        _call("action_info_set_logging", info, True)
        status = comgr.functions.amd_comgr_do_action(action, info, inputs, results)
        log = b"\n".join(_results(results, LOG)).rstrip(b"\0\n").decode("utf-8", "replace")
        if status:
            raise ComgrError(
                f"{comgr}: {name} does not {verb} for {isa} with {' '.join(options) or 'no options'}: "
                f"{_word(status)}:\n{log.strip() or 'its log is empty'}"
            )
        made = _results(results, wanted)
    if len(made) != 1:
        raise ComgrError(f"{comgr}: {name} for {isa}: {len(made)} results where one was due. Its log:\n{log}")
    return made[0]


def _results(results: Any, kind: int) -> list[bytes]:
    """The contents of all data of a kind in a set."""
    comgr = library()
    count, size, data = (
        comgr.ffi.new("size_t *"),
        comgr.ffi.new("size_t *"),
        comgr.ffi.new("amd_comgr_data_t *"),
    )
    _call("action_data_count", results, kind, count)
    contents = []
    for index in range(count[0]):
        _call("action_data_get_data", results, kind, index, data)
        try:
            _call("get_data", data[0], size, comgr.ffi.NULL)
            content = comgr.ffi.new("char[]", max(size[0], 1))
            _call("get_data", data[0], size, content)
            contents.append(bytes(comgr.ffi.buffer(content, size[0])))
        finally:
            _call("release_data", data[0])
    return contents
