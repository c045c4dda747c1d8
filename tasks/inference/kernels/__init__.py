"""Products whose result for a row depends on no other row, by construction, and the order in which kernels are tried.

`linear_kernel` and `attention_kernel` import Triton; everything else imports them when they are used first.
"""
