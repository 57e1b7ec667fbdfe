//! Why calls fail.

use serde::{Deserialize, Serialize};

/// Why a call failed, as in errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Errno(pub u16);

#[expect(missing_docs, reason = "the names are those of errno(3)")]
impl Errno {
    pub const EPERM: Self = Self(1);
    pub const ENOENT: Self = Self(2);
    pub const E2BIG: Self = Self(7);
    pub const EAGAIN: Self = Self(11);
    pub const ENOMEM: Self = Self(12);
    pub const EACCES: Self = Self(13);
    pub const EEXIST: Self = Self(17);
    pub const EINVAL: Self = Self(22);
    pub const EFBIG: Self = Self(27);
    pub const ENOSPC: Self = Self(28);
    pub const ERANGE: Self = Self(34);
    pub const ENOSYS: Self = Self(38);
    pub const ENOMSG: Self = Self(42);
    pub const EIDRM: Self = Self(43);
}
