"""In-place names: which methods have a form that ends in _, or is an operator such as +=.

In       nothing
Out      NAMES and VIEWS: methods; OPERATORS: Python's name of an operator -> the method; METHODS, all that these make
Next     in_place.py (how they are made), table.py (which says that in_place.py has them)
"""

# x.NAME_(...) is x.NAME(...), written into x
NAMES = (
    "abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr arccos arccosh arcsin arcsinh arctan arctan2 "
    "arctanh asin asinh atan atan2 atanh baddbmm bitwise_and bitwise_left_shift bitwise_not bitwise_or "
    "bitwise_right_shift bitwise_xor ceil celu clamp clamp_max clamp_min clip copysign cos cosh cumprod cumsum deg2rad "
    "digamma div divide eq erf erfc erfinv elu exp exp2 expm1 fill fix float_power floor floor_divide fmod "
    "frac gcd ge greater greater_equal gt hardtanh heaviside hypot i0 index_add index_copy index_fill index_put "
    "index_reduce lcm ldexp le leaky_relu lerp less less_equal lgamma log log10 log1p log2 logical_and logical_not "
    "logical_or logical_xor logit lt masked_fill masked_scatter mul multiply mvlgamma nan_to_num ne neg negative "
    "nextafter not_equal polygamma pow put rad2deg reciprocal relu remainder renorm round rsqrt scatter scatter_add "
    "scatter_reduce selu sgn sigmoid sign sin sinc sinh sqrt square sub subtract tan tanh threshold tril triu "
    "true_divide trunc xlogy igamma igammac"
).split()
# x.NAME_(...) makes x the view x.NAME(...) of its memory
VIEWS = "detach squeeze swapaxes swapdims t transpose unsqueeze".split()
OPERATORS = {
    "__iadd__": "add", "__isub__": "sub", "__imul__": "mul", "__itruediv__": "div", "__ifloordiv__": "floor_divide",
    "__imod__": "remainder", "__ipow__": "pow", "__iand__": "bitwise_and", "__ior__": "bitwise_or",
    "__ixor__": "bitwise_xor", "__ilshift__": "bitwise_left_shift", "__irshift__": "bitwise_right_shift",
}  # fmt: skip
METHODS = [*(f"{name}_" for name in (*NAMES, *VIEWS)), *OPERATORS]
