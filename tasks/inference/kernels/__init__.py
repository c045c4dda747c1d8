"""Products whose result for a row depends on no other row, by construction, and the choice among kernels.

`linear_kernel` and `attention_kernel` import Triton; everything else imports them when they are used first.
"""
