"""Which device trains: the GPU that was asked for, or the CPU with one clear line."""

import torch

from protocol.errors import ConfigError

__all__ = ["pick_device"]


def pick_device(wish: str) -> tuple[torch.device, str]:
    """Choose a device.

    Args:
        wish: "cpu", or the number of a GPU as the person typed it.

    Returns:
        The device, and a line for the person.

    Raises:
        ConfigError: it is neither.
    """
    if wish == "cpu":
        return torch.device("cpu"), "training on the CPU"
    if not wish.isdecimal():
        raise ConfigError(f"--gpu {wish} cannot be used: it must be cpu or a number such as 0")
    if not torch.cuda.is_available():
        return torch.device("cpu"), f"GPU {wish} is not there (no CUDA device): training on the CPU"
    found = torch.cuda.device_count()
    index = int(wish)
    if index >= found:
        raise ConfigError(
            f"GPU {wish} is not there: this host has {found}, numbered 0 to {found - 1}",
            hint="give one of them, or --gpu cpu",
        )
    torch.cuda.set_device(index)
    name = torch.cuda.get_device_name(index)
    return torch.device("cuda", index), f"training on GPU {index}: {name}"
