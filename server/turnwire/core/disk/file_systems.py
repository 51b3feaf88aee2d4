"""Which file systems hold data, and which ones are interfaces of the kernel.

Files of the latter can hold secrets of the server itself (its environment, with its keys, is a file of procfs), act
when they are read, or never end. They are known by the type that the kernel reports for an open descriptor, so neither
another name nor another mount hides them. This is a list of what is refused, because the interfaces of the kernel are
few and known, while data is on file systems without number: of vendors, of clusters, of virtual machines.
"""

import ctypes
import os
import sys

_KERNEL_INTERFACES = {
    0x0187: "autofs",
    0x1373: "devfs",
    0x1CD1: "devpts",
    0x9FA0: "proc",
    0x9FA1: "openpromfs",
    0x9FA2: "usbdevfs",
    0x0027E0EB: "cgroup",
    0x07655821: "resctrl",
    0x09041934: "anon_inodefs",
    0x0A647361: "functionfs",
    0x0BAD1DEA: "futexfs",
    0x19800202: "mqueue",
    0x42494E4D: "binfmt_misc",
    0x43415D53: "smackfs",
    0x444D4142: "dmabuf",
    0x454D444D: "devmem",
    0x474D454D: "guest_memfd",
    0x50494446: "pidfs",
    0x50495045: "pipefs",
    0x534F434B: "sockfs",
    0x5345434D: "secretmem",
    0x5A3C69F0: "apparmorfs",
    0x62646576: "bdev",
    0x62656570: "configfs",
    0x62656572: "sysfs",
    0x63677270: "cgroup2",
    0x64626720: "debugfs",
    0x64646178: "dax",
    0x6165676C: "pstore",
    0x65735543: "fusectl",
    0x67596969: "rpc_pipefs",
    0x6C6F6F70: "binder",
    0x6E667364: "nfsd",
    0x6E736673: "nsfs",
    0x73636673: "securityfs",
    0x74726163: "tracefs",
    0x958458F6: "hugetlbfs",
    0xABBA1974: "xenfs",
    0xAEE71EE7: "gadgetfs",
    0xCAFE4A11: "bpf",
    0xDE5E81E4: "efivarfs",
    0xF97CFF8C: "selinuxfs",
}
"""Names by type; most are in linux/magic.h. devtmpfs is missing because it reports the type of tmpfs: its devices are
no regular files."""

_BUFFER_BYTES = 512
"""More than struct statfs takes on any system."""


def kernel_interface(descriptor: int) -> str | None:
    """Returns the name of a descriptor's file system if it is an interface of the kernel, else None.

    Works with descriptors that were opened with O_PATH. Returns None on systems other than Linux, whose interfaces of
    the kernel have no regular files.

    Raises:
        OSError: the file system cannot be asked.
    """
    return _KERNEL_INTERFACES.get(file_system_type(descriptor)) if sys.platform == "linux" else None


def file_system_type(descriptor: int) -> int:
    """Returns the number that Linux reports as the type of a descriptor's file system. Raises OSError."""
    found = ctypes.create_string_buffer(_BUFFER_BYTES)
    if ctypes.CDLL(None, use_errno=True).fstatfs(ctypes.c_int(descriptor), found) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    # the first field is a long, but on s390x an int; all types have 32 bits
    bytes_of_type = 4 if os.uname().machine == "s390x" else ctypes.sizeof(ctypes.c_long)
    return int.from_bytes(found.raw[:bytes_of_type], sys.byteorder) & 0xFFFFFFFF
