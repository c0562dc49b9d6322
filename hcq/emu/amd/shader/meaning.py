"""Meanings: what a vector instruction computes, declared as a signature and a function of arrays.

In       Table.define(names, "f32 = f32 f32", function)
Out      Meaning rows, looked up by instruction name
Changes  the table, while its module is loaded
Next     integer_ops.py, float_ops.py, convert_ops.py (the rows), vector_ops.py (operands, modifiers, EXEC)

The signature's kinds say how operands are read and the result is written; the function never sees registers. gfx942's
older names for the same operations are in ALIASES.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.operands import Context

Compute = Callable[..., Array]


@dataclass(frozen=True)
class Meaning:
    """out and ins are kinds; `make` gives the function; when it accumulates, the old destination is the last source."""

    out: str
    ins: tuple[str, ...]
    make: Callable[[Context], Compute]
    clamped: Compute | None = None
    accumulates: bool = False
    arithmetic: bool = False  # float sources and results obey the denormal mode


class Table(dict[str, Meaning]):
    """Instruction name -> what it computes."""

    def define(
        self,
        names: str,
        signature: str,
        compute: Compute | None = None,
        *,
        make: Callable[[Context], Compute] | None = None,
        clamped: Compute | None = None,
        accumulates: bool = False,
        arithmetic: bool = False,
    ) -> None:
        """Add rows for all `names`. Give `compute`, or `make` when the function depends on the mode."""
        out, ins = signature.split("=")
        maker: Callable[[Context], Any] = make if make is not None else lambda ctx: compute
        row = Meaning(out.strip(), tuple(ins.split()), maker, clamped, accumulates, arithmetic)
        self.update(dict.fromkeys(names.split(), row))


# gfx9's or gfx10's name -> the name of the same operation in our tables
ALIASES = {
    "v_add_u32": "v_add_nc_u32",
    "v_sub_u32": "v_sub_nc_u32",
    "v_subrev_u32": "v_subrev_nc_u32",
    "v_add_i32": "v_add_nc_i32",
    "v_sub_i32": "v_sub_nc_i32",
    "v_add_u16": "v_add_nc_u16",
    "v_sub_u16": "v_sub_nc_u16",
    "v_subrev_u16": "v_subrev_nc_u16",
    "v_add_i16": "v_add_nc_i16",
    "v_sub_i16": "v_sub_nc_i16",
    "v_addc_co_u32": "v_add_co_ci_u32",
    "v_subb_co_u32": "v_sub_co_ci_u32",
    "v_subbrev_co_u32": "v_subrev_co_ci_u32",
    "v_ffbh_u32": "v_clz_i32_u32",
    "v_ffbl_b32": "v_ctz_i32_b32",
    "v_ffbh_i32": "v_cls_i32",
    "v_cvt_rpi_i32_f32": "v_cvt_nearest_i32_f32",
    "v_cvt_flr_i32_f32": "v_cvt_floor_i32_f32",
    "v_cvt_pkrtz_f16_f32": "v_cvt_pk_rtz_f16_f32",
    "v_cvt_pknorm_i16_f32": "v_cvt_pk_norm_i16_f32",
    "v_cvt_pknorm_u16_f32": "v_cvt_pk_norm_u16_f32",
    "v_cvt_pknorm_i16_f16": "v_cvt_pk_norm_i16_f16",
    "v_cvt_pknorm_u16_f16": "v_cvt_pk_norm_u16_f16",
    "v_mul_legacy_f32": "v_mul_dx9_zero_f32",
    "v_fma_legacy_f32": "v_fma_dx9_zero_f32",
    "v_fmac_legacy_f32": "v_fmac_dx9_zero_f32",
    "v_mad_legacy_f16": "v_mad_f16",
    "v_mad_legacy_u16": "v_mad_u16",
    "v_mad_legacy_i16": "v_mad_i16",
    "v_fma_legacy_f16": "v_fma_f16",
    "v_div_fixup_legacy_f16": "v_div_fixup_f16",
    "v_dot2c_f32_f16": "v_dot2acc_f32_f16",
    "v_dot2c_f32_bf16": "v_dot2acc_f32_bf16",
    "v_exp_legacy_f32": "v_exp_f32",
    "v_log_legacy_f32": "v_log_f32",
}

# gfx12 name -> the same, where leaving out "num" is not all
ALIASES_RDNA4 = {"v_mad_co_u64_u32": "v_mad_u64_u32", "v_mad_co_i64_i32": "v_mad_i64_i32"}

# on gfx942 and gfx950 these keep the half they do not write; other 16-bit results clear it
KEEPS_OTHER_HALF_GFX9 = {
    *"v_fma_f16 v_mad_f16 v_mad_u16 v_mad_i16 v_div_fixup_f16 v_min3_f16 v_max3_f16 v_med3_f16 v_min3_i16".split(),
    *"v_max3_i16 v_med3_i16 v_min3_u16 v_max3_u16 v_med3_u16 v_add_i16 v_sub_i16".split(),
    *"v_ashr_pk_i8_i32 v_ashr_pk_u8_i32 v_bitop3_b16".split(),
}
