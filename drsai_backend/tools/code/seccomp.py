"""Seccomp forbids code in bubblewrap the system calls that reach around its namespaces and limits.

Namespaces know nothing of kernel keyrings and of sockets to the host of a virtual machine; a limit on memory counts no
memory in anonymous files and shared segments; and what only a system's administrator needs is attack surface.
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import Final

# By machine: the number of its architecture in audit records, and the system calls' numbers.
_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_DENIED: Final[dict[str, tuple[int, int]]] = {
    # Keys of whoever has started the server.
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # Memory that no limit counts.
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "msgget": (68, 186),
    "semget": (64, 190), "mq_open": (240, 180),
    # Other namespaces and file systems.
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    # Other processes.
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    # Programs in the kernel, and rings of calls that no filter sees.
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    # What is counted for a whole machine or user, of which others need some.
    "io_setup": (206, 0), "inotify_init": (253, 26), "inotify_init1": (294, 26),
    # The machine's.
    "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142), "acct": (163, 89), "quotactl": (179, 60),
    "syslog": (103, 116), "settimeofday": (164, 170), "clock_settime": (227, 112), "sethostname": (170, 161),
}  # fmt: skip
_CLONE: Final = (56, 220)
_CLONE3: Final = (435, 435)
_SOCKET: Final = (41, 198)
_NEW_NAMESPACE: Final = 0x7E020080
_AF_UNIX: Final = 1

_LOAD, _IS, _AT_LEAST, _HAS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _FIRST = 0, 4, 16
_KILL, _ALLOW, _ERROR = 0x80000000, 0x7FFF0000, 0x00050000


def seccomp_filter(machine: str | None = None) -> bytes | None:
    """The filter, as bubblewrap takes it; None: this kind of machine is not known here."""
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        return None
    which = list(_ARCHITECTURES).index(machine)
    denied = _RETURN, 0, 0, _ERROR | errno.EPERM
    program = [
        (_LOAD, 0, 0, _ARCH),
        (_IS, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NR),
        # The other numbering of x86-64; elsewhere there are none as high.
        (_AT_LEAST, 0, 1, 0x40000000),
        denied,
    ]
    for numbers in _DENIED.values():
        program += [(_IS, 0, 1, numbers[which]), denied]
    program += [
        # Its flags are behind a pointer. The C library then takes clone, whose flags are seen.
        (_IS, 0, 1, _CLONE3[which]),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        (_IS, 0, 3, _CLONE[which]),
        (_LOAD, 0, 0, _FIRST),
        (_HAS, 0, 1, _NEW_NAMESPACE),
        denied,
        (_LOAD, 0, 0, _NR),
        (_IS, 0, 3, _SOCKET[which]),
        (_LOAD, 0, 0, _FIRST),
        (_IS, 1, 0, _AF_UNIX),
        denied,
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("<HBBI", *each) for each in program)
