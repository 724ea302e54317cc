# SPDX-License-Identifier: Apache-2.0
"""What tests/golden/text is drawn from and hashed with: SplitMix64, random strings and random ids, every character, XXH64.

tests/support/RandomText.h draws the same in C++; the tables that both read are text/random-strings.json.
"""

import json
import pathlib
import struct

MASK = (1 << 64) - 1
TABLES = pathlib.Path(__file__).resolve().parent / "text" / "random-strings.json"


class SplitMix64:
    def __init__(self, seed):
        self.state = seed & MASK

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        x = self.state
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        return x ^ (x >> 31)

    def below(self, n):
        return self.next() % n


class RandomStrings:
    """String number n; each is drawn from a generator of its own.

    A string is a run of pieces, each of one kind of the tables; a kind is a sequence of parts. A part takes `least` to
    `most` times a string of `items` or a code point of `ranges` ([first, last], without surrogates), the same one each
    time where it is marked `same`.
    """

    def __init__(self):
        self.kinds = json.loads(TABLES.read_text())["kinds"]

    def string(self, number):
        rng = SplitMix64(number)
        size = rng.below(16)
        pieces = 0 if size == 0 else 1 if size < 6 else 2 + rng.below(8)
        if number % 500 == 499:
            pieces = 100 + rng.below(200)
        return "".join(self.piece(rng) for _ in range(pieces))

    def piece(self, rng):
        text = []
        for part in self.kinds[rng.below(len(self.kinds))]["parts"]:
            count = part["least"] + rng.below(part["most"] - part["least"] + 1)
            if part.get("same"):
                text += [self.element(rng, part)] * count
            else:
                text += [self.element(rng, part) for _ in range(count)]
        return "".join(text)

    @staticmethod
    def element(rng, part):
        if "items" in part:
            return part["items"][rng.below(len(part["items"]))]
        first, last = part["ranges"][rng.below(len(part["ranges"]))]
        code = first + rng.below(last - first + 1)
        return chr(code - 0x800 if 0xD800 <= code <= 0xDFFF else code)


def every_character(number):
    """64 code points, between letters, digits and spaces; 17,408 numbers take all there are."""
    codes = [c for c in range(64 * number, 64 * number + 64) if c <= 0x10FFFF and not 0xD800 <= c <= 0xDFFF]
    return "".join(f"x{chr(c)}1{chr(c)}{chr(c)} " for c in codes)


def random_ids(number, size):
    """Sequence number n of ids, a few of them no token's, often a run of neighbours (which byte tokens are)."""
    rng = SplitMix64((1 << 32) + number)
    ids = []
    for _ in range(rng.below(24)):
        first = rng.below(size + 2)
        if rng.below(2) == 0:
            ids.append(first)
        else:
            ids += [min(first, 255) + rng.below(8) for _ in range(1 + rng.below(6))]
    return ids


P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def rotate(x, bits):
    return ((x << bits) | (x >> (64 - bits))) & MASK


def xxh64(data, seed=0):
    """XXH64 by its specification, as runtime/base/Xxh64.h."""
    def mix(accumulator, lane):
        return (rotate((accumulator + lane * P2) & MASK, 31) * P1) & MASK

    size, at = len(data), 0
    if size >= 32:
        a, b, c, d = (seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK
        for w, x, y, z in struct.iter_unpack("<4Q", data[:size // 32 * 32]):
            a, b, c, d = mix(a, w), mix(b, x), mix(c, y), mix(d, z)
        at = size // 32 * 32
        h = (rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18)) & MASK
        for lane in (a, b, c, d):
            h = ((h ^ mix(0, lane)) * P1 + P4) & MASK
    else:
        h = (seed + P5) & MASK
    h = (h + size) & MASK
    while at + 8 <= size:
        h = (rotate(h ^ mix(0, struct.unpack_from("<Q", data, at)[0]), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= size:
        h = (rotate(h ^ (struct.unpack_from("<I", data, at)[0] * P1 & MASK), 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        h = (rotate(h ^ (byte * P5 & MASK), 11) * P1) & MASK
    h = ((h ^ (h >> 33)) * P2) & MASK
    h = ((h ^ (h >> 29)) * P3) & MASK
    return h ^ (h >> 32)
