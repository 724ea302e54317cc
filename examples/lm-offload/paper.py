# SPDX-License-Identifier: Apache-2.0
"""The paper's numbers, and the settings that they are of."""

MODELS = {"OPT-30B": "opt-30b", "OPT-66B": "opt-66b", "LLaMA-30B": "llama-30b", "LLaMA-65B": "llama-65b"}
LENGTHS = (8, 16, 32, 64, 128)
PROMPT = 64

# Figure 3: OPT-30B, a block of 640 in 10 mini-batches, 64 + 128 tokens. (attention, weights, KV): tokens/s
FIGURE_3 = {
    ("device", "", ""): 46,
    ("device", "q4", ""): 35,
    ("device", "", "q4"): 82,
    ("device", "q4", "q4"): 55,
    ("cpu", "", ""): 41,
    ("cpu", "q4", ""): 32,
}
# Table 1: GiB of weights on the CPU, by where attention is. A layer has 1.1484 GiB of matrices.
TABLE_1_WEIGHTS = {"device": 38.88, "cpu": 16.32}

# Table 3, of each model the rows of LENGTHS: (batch, wg, hg, tokens/s)
FLEXGEN_ROWS = {
    "OPT-30B": [(1792, 55, 0, 51), (1600, 55, 0, 56), (1344, 55, 0, 53), (960, 55, 0, 50), (640, 55, 0, 41)],
    "OPT-66B": [(780, 23, 100, 24), (828, 23, 100, 22), (702, 24, 100, 17), (720, 24, 100, 14), (480, 24, 100, 11)],
    "LLaMA-30B": [(1536, 48, 0, 35), (1408, 48, 0, 38), (1152, 48, 0, 37), (832, 48, 0, 35), (576, 48, 100, 31)],
    "LLaMA-65B": [(1140, 14, 100, 20), (1020, 14, 100, 20), (616, 16, 100, 23), (616, 16, 100, 18),
                  (392, 16, 100, 15)],
}
LM_OFFLOAD_ROWS = {
    "OPT-30B": [(1792, 55, 0, 117), (1600, 55, 0, 139), (1344, 55, 0, 144), (960, 70, 0, 126), (640, 75, 0, 102)],
    "OPT-66B": [(780, 23, 100, 40), (828, 23, 100, 42), (702, 24, 100, 34), (720, 24, 100, 31), (480, 24, 100, 25)],
    "LLaMA-30B": [(1536, 42, 0, 95), (1408, 48, 0, 109), (1152, 48, 0, 111), (832, 48, 0, 96), (576, 48, 100, 89)],
    "LLaMA-65B": [(1140, 14, 100, 44), (1020, 14, 100, 47), (616, 16, 100, 40), (616, 16, 100, 38),
                  (392, 16, 100, 32)],
}
# (batch, tokens/s): all weights on the device, KV on the host
ZERO_ROWS = {
    "OPT-30B": [(64, 94), (64, 116), (64, 113), (64, 126), (64, 110)],
    "OPT-66B": [(32, 28), (16, 32), (8, 20), (4, 11), (4, 10)],
    "LLaMA-30B": [(64, 34), (64, 68), (64, 73), (64, 69), (64, 63)],
    "LLaMA-65B": [(32, 19), (16, 25), (8, 39), (4, 31), (4, 31)],
}
# "mem" of LM-Offload and FlexGen at 8 tokens, GB as printed
MEM_8 = {"OPT-30B": 222, "OPT-66B": 246, "LLaMA-30B": 226, "LLaMA-65B": 323}

# Figure 9, ratios alone: LM-Offload by FlexGen at most, and how many times as large the gap is on four GPUs.
FIGURE_9_MOST, FIGURE_9_GROWN = 4.27, 13.9

# What constants were fitted to, named before fitting; everything else of Table 3 is held out.
CALIBRATION_ROWS = {("LM-Offload", "OPT-30B", 8), ("FlexGen", "OPT-30B", 8), ("FlexGen", "LLaMA-30B", 128)}


def setting(block, output, attention, weights, kv, percent, midpoints=False):
    return {"block": block, "mini_batches": 10, "prompt": PROMPT, "output": output, "attention": attention,
            "weights": weights, "kv": kv, "percent": percent, "midpoints": midpoints}


def figure_3(layer_bytes, layers):
    """The six settings, with Table 1's weights on the CPU."""
    out = []
    for attention, weights, kv in FIGURE_3:
        away = 100 * TABLE_1_WEIGHTS[attention] * 2**30 / (layer_bytes * layers)
        out.append(setting(640, 128, attention, weights, kv, f"{100 - away!r} {away!r} 0 100 0 100"))
    return out


def table_3(system, row, output):
    """FlexGen attends on the CPU and packs nothing; LM-Offload attends on the device and packs KV (Figure 3's best)."""
    block, wg, hg = row[:3]
    percent = f"{wg} {100 - wg} 0 100 {hg} {100 - hg}"
    return setting(block, output, *(("cpu", "", "") if system == "FlexGen" else ("device", "", "q4")), percent, True)
