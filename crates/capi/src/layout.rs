//! Checks the header against the code: the C compiler verifies every size and number.

use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::offset_of;
use std::process::{Command, Stdio};

use crate::error::tests::numbers;
use crate::pipes::CReceived;
use crate::report::{CCounter, CMember, CStamp, CStat};
use crate::segment::COptions;

/// C code that compiles only if every condition holds.
struct Checks(String);

impl Checks {
    fn that(&mut self, condition: &str) {
        let number = self.0.len();
        writeln!(
            self.0,
            "typedef char check_{number}[({condition}) ? 1 : -1];"
        )
        .unwrap();
    }

    fn size<T>(&mut self, name: &str) {
        self.that(&format!("sizeof({name}) == {}", size_of::<T>()));
    }

    fn compile(self) {
        let mut compiler = Command::new("cc")
            .args(["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
            .args(["-I", concat!(env!("CARGO_MANIFEST_DIR"), "/include")])
            .args(["-fsyntax-only", "-x", "c", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("a C compiler is needed to test the C interface");
        let mut stdin = compiler.stdin.take().unwrap();
        stdin.write_all(self.0.as_bytes()).unwrap();
        drop(stdin);
        assert!(compiler.wait().unwrap().success(), "see above");
    }
}

macro_rules! offsets {
    ($checks:ident, $type:ty, $name:literal, $($field:ident),+) => {
        $checks.size::<$type>($name);
        $($checks.that(&format!(
            "offsetof({}, {}) == {}",
            $name,
            stringify!($field),
            offset_of!($type, $field)
        ));)+
    };
}

#[test]
fn the_header_agrees() {
    let mut c = Checks("#include <pagemesh.h>\n".to_owned());
    offsets!(
        c,
        COptions,
        "pagemesh_options_t",
        mode,
        exclusive,
        policy,
        manager,
        window_ns,
        local,
        prefix,
        replicas,
        reserved
    );
    offsets!(
        c,
        CStat,
        "pagemesh_stat_t",
        id,
        size,
        mode,
        uid,
        gid,
        home,
        attached,
        removed,
        policy,
        manager,
        window_ns,
        replicas,
        name
    );
    offsets!(c, CMember, "pagemesh_member_t", node, health, name, address);
    offsets!(c, CCounter, "pagemesh_counter_t", name, value);
    offsets!(
        c,
        CStamp,
        "pagemesh_timestamp_t",
        number,
        nanos,
        tag,
        what,
        unused
    );
    offsets!(
        c,
        CReceived,
        "pagemesh_received_t",
        kind,
        length,
        from,
        reserved
    );
    for (name, number) in numbers() {
        c.that(&format!("{name} == {number}"));
    }
    let version = crate::mesh::pagemesh_version_number();
    c.that(&format!("PAGEMESH_VERSION_NUMBER == {version}"));
    let version = env!("CARGO_PKG_VERSION");
    c.that(&format!(
        "sizeof(PAGEMESH_VERSION) == sizeof(\"{version}\")"
    ));
    c.compile();
}
