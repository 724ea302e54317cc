# SPDX-License-Identifier: Apache-2.0
"""What machines reach, as the closed form takes it (runtime/cost/lm_offload/ClosedForm.h): rates a second. Where a
figure was fitted, to which of the paper's numbers; all others are of data sheets or assumed, and say so."""

GB = 1e9

# One A100 of 40 GB and two Xeon 6330 with 240 GB, as the hardware would do it.
A100 = {
    "h2d": 25 * GB,               # pinned copies: examples/hardware/a100-40.toml
    "d2h": 25 * GB,
    "duplex": 36 * GB,
    "device_flops": 0.7 * 312e12,  # the same file: 312 TFLOP/s, of which 70%
    "device_bandwidth": 0.8 * 1555 * GB,
    # Codes are read and elements written, both at the device memory's speed: of 1 byte written 0.28 are read.
    "device_packing": 0.8 * 1555 * GB / 1.28125,
    "cpu_attention": 200 * GB,     # assumed: half of what 2 x 8 channels of DDR4-2933 carry, 375 GB/s
    "device_bytes": 40 * 10**9,
    "host_bytes": 240 * 10**9,     # Table 4, decimal: FlexGen's rows of OPT-30B need 199 to 209 GB
}

# The same machine under FlexGen's runtime: five constants fitted to nine of the paper's numbers (CALIBRATION in
# paper.py), all named before any was fitted.
A100_PAPER = {
    **A100,
    "h2d": 11.1 * GB,             # Figure 3, attention on the device: four points
    "device_packing": 94 * GB,    # the same four; bytes of F16 that are made
    "cpu_attention": 7.7 * GB,    # Figure 3, attention on the CPU: two points; LLaMA-30B, n = 128, FlexGen
    "device_flops": 154e12,       # Table 3, OPT-30B, n = 8, LM-Offload: its prefill
    "d2h": 2.29 * GB,             # Table 3, OPT-30B, n = 8, FlexGen: KV of its prefill stored
    "duplex": (11.1 + 2.29) * GB,  # nothing in the paper tells: directions do not disturb each other
}

# FlexGen's runtime: a layer computes when all that it loads is there, and each mini-batch unpacks the weights anew.
FLEXGEN = {"serial": True, "unpack_per_mini_batch": True}
ONCE = {"serial": True, "unpack_per_mini_batch": False}
OVERLAPPED = {"serial": False, "unpack_per_mini_batch": False}
