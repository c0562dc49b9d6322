"""The line of a kernel that called a function which its compiler put into it."""

from __future__ import annotations

import random

import pytest

from hcq.code.inlined import caller_at, caller_of
from hcq.code.lines import line_at

# two stores: one of the kernel's, at line 9; one of a function of a header, called at line 10 by one that is called there
TEXT = """
target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @kernel(ptr addrspace(1) %out) !dbg !10 {
  store volatile i32 1, ptr addrspace(1) %out, !dbg !20
  store volatile i32 2, ptr addrspace(1) %out, !dbg !21
  ret void, !dbg !20
}
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!1, !2}
!0 = distinct !DICompileUnit(language: DW_LANG_C_plus_plus, file: !3, isOptimized: true, emissionKind: FullDebug)
!1 = !{i32 2, !"Debug Info Version", i32 3}
!2 = !{i32 7, !"Dwarf Version", i32 @VERSION@}
!3 = !DIFile(filename: "sum.hip", directory: "/src")
!4 = !DIFile(filename: "atomic.h", directory: "/hip")
!5 = !DISubroutineType(types: !{null})
!10 = distinct !DISubprogram(name: "kernel", scope: !3, file: !3, line: 8, type: !5, unit: !0,
                             spFlags: DISPFlagDefinition)
!11 = distinct !DISubprogram(name: "outer", scope: !3, file: !3, line: 3, type: !5, unit: !0,
                             spFlags: DISPFlagDefinition)
!12 = distinct !DISubprogram(name: "inner", scope: !4, file: !4, line: 30, type: !5, unit: !0,
                             spFlags: DISPFlagDefinition)
!20 = !DILocation(line: 9, scope: !10)
!21 = !DILocation(line: 31, scope: !12, inlinedAt: !22)
!22 = distinct !DILocation(line: 4, scope: !11, inlinedAt: !23)
!23 = distinct !DILocation(line: 10, scope: !10)
"""


def image(version: int) -> bytes:
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu="gfx1100")
    made: bytes = target.emit_object(llvm.parse_assembly(TEXT.replace("@VERSION@", str(version))))
    return made


@pytest.mark.parametrize("version", [4, 5])
def test_an_instruction_of_an_inlined_function_names_the_line_that_called_the_outermost_one(
    version: int,
) -> None:
    made = image(version)
    places = {(line_at(made, "kernel", at), caller_at(made, "kernel", at)) for at in range(0, 64, 4)}
    assert ("/src/sum.hip:9", "") in places
    assert ("/hip/atomic.h:31", "/src/sum.hip:10") in places
    assert {caller for line, caller in places if line.startswith("/hip")} == {"/src/sum.hip:10"}


def test_objects_without_debug_information_and_damaged_ones_name_no_caller() -> None:
    assert caller_of(b"", 0) == caller_at(b"no object", "kernel", 0) == ""
    made, rng = image(5), random.Random(2)
    for _ in range(60):
        damaged = bytearray(made)
        for _ in range(rng.randrange(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        assert isinstance(caller_of(bytes(damaged), 8), str)
