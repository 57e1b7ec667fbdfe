//! Enums that only choose: the numbers of their variants.

use super::{lines, samples};
use crate::Version;
use crate::peer::{Access, Contents, Health, Kind, Manager, Merge, Spare, Spread};

use crate::sysv::{Family, SemRead};

pub(super) fn all() -> String {
    lines("Access", accesses())
        + &lines("Contents", contents())
        + &lines("Health", healths())
        + &lines("Kind", kinds())
        + &lines("Manager", managers())
        + &lines("Merge", merges())
        + &lines("Spare", spares())
        + &lines("Spread", spreads())
        + &lines("sysv::Family", families())
        + &lines("sysv::SemRead", readings())
}

samples! {
    fn accesses() -> Access {
        Read: Access::Read;
        Write: Access::Write;
    }
}

samples! {
    fn contents() -> Contents {
        Zero: Contents::Zero;
        Same: Contents::Same;
        Bytes: Contents::Bytes;
        None: Contents::None;
    }
}

samples! {
    fn healths() -> Health {
        Alive: Health::Alive;
        Left: Health::Left;
        Dead: Health::Dead;
        Revoked: Health::Revoked;
        Forgotten: Health::Forgotten;
    }
}

samples! {
    fn kinds() -> Kind {
        U8: Kind::U8;
        U16: Kind::U16;
        U32: Kind::U32;
        U64: Kind::U64;
        I8: Kind::I8;
        I16: Kind::I16;
        I32: Kind::I32;
        I64: Kind::I64;
        F32: Kind::F32;
        F64: Kind::F64;
    }
}

samples! {
    fn managers() -> Manager {
        Dynamic: Manager::Dynamic;
        Fixed: Manager::Fixed;
    }
}

samples! {
    fn merges() -> Merge {
        Sum: Merge::Sum;
        Min: Merge::Min;
        Max: Merge::Max;
        Or: Merge::Or;
        Replace: Merge::Replace;
    }
}

samples! {
    fn spares() -> Spare {
        None: Spare::None;
        Stash: Spare::Stash;
        Copy: Spare::Copy;
        Replica: Spare::Replica { version: Some(Version(7)), seen: Version(6), sure: true };
    }
}

samples! {
    fn spreads() -> Spread {
        Lazy: Spread::Lazy;
        Eager: Spread::Eager;
        Hybrid: Spread::Hybrid;
        Invalidate: Spread::Invalidate;
    }
}

samples! {
    fn families() -> Family {
        Shm: Family::Shm;
        Sem: Family::Sem;
        Msg: Family::Msg;
    }
}

samples! {
    fn readings() -> SemRead {
        Value: SemRead::Value;
        Pid: SemRead::Pid;
        Rising: SemRead::Rising;
        Zero: SemRead::Zero;
        Count: SemRead::Count;
    }
}
