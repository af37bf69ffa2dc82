"""Random numbers that nobody can compute who has not the key: the noise of private training.

The generators of torch and numpy are made to be fast: whoever sees enough of what one draws can
tell the rest of it. Here AES-256 in counter mode makes the bits.
"""

import math
from hashlib import blake2b

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import Tensor

__all__ = ["KEY_BYTES", "Keystream"]

KEY_BYTES = 32
_UNIT = 2.0**-53  # between neighbouring float64 in [0.5, 1)


class Keystream:
    def __init__(self, key: bytes) -> None:
        """Begin; equal keys give equal numbers, so a secret key is used once.

        Args:
            key: `KEY_BYTES` long.
        """
        cipher = Cipher(algorithms.AES256(key), modes.CTR(bytes(16)))
        self._encryptor = cipher.encryptor()

    @classmethod
    def seeded(cls, seed: int) -> "Keystream":
        """A stream that whoever knows the seed can repeat: for studies and tests."""
        return cls(blake2b(str(seed).encode(), digest_size=KEY_BYTES).digest())

    def uniform(self, count: int) -> Tensor:
        """Numbers in (0, 1), neither end included: (count,) float64, on the CPU."""
        raw = np.frombuffer(self._encryptor.update(bytes(8 * count)), dtype="<u8")
        return torch.from_numpy(((raw >> np.uint64(11)).astype(np.float64) + 0.5) * _UNIT)

    def normal(self, count: int) -> Tensor:
        """Standard normal numbers: (count,) float64, on the CPU; Box and Muller, 1958."""
        half = (count + 1) // 2
        length = self.uniform(half).log_().mul_(-2.0).sqrt_()
        angle = self.uniform(half).mul_(2.0 * math.pi)
        return torch.cat([length * angle.cos(), length * angle.sin()])[:count]
