"""How the C library hands memory out; decides speed, never a result."""

import ctypes
from contextlib import suppress

# Of glibc's malloc.h.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
LARGEST = 32 << 20  # bytes of a block that can be kept; glibc takes no more
KEPT = 1 << 30  # bytes: more free memory than this goes back to the system


def keep_freed_memory() -> None:
    """Let freed tensors be used again instead of going back to the system, where glibc is used.

    It returns large blocks as soon as they are freed, and the system clears each page anew when
    the next tensor touches it: in a tower of residual blocks that costs a fifth of the time.
    """
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in (
            (M_MMAP_THRESHOLD, LARGEST),
            (M_TRIM_THRESHOLD, KEPT),
            (M_TOP_PAD, 64 << 20),
        ):
            mallopt(option, value)
