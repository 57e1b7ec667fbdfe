//! Which nodes a part of the state names: a walk over everything that serde can see in it.
//!
//! A number is given to a new life only when no member names its last one any more (decision 34).
//! A list of places to look at would be wrong the day after somebody adds a field, so nothing is
//! listed here but what does *not* count: see [`NOT_NAMED`]. All else that is a [`NodeId`], a
//! [`NodeSet`](pagemesh_wire::NodeSet), a segment or a System V object of a home is found, wherever
//! it is.

use core::fmt;
use pagemesh_wire::{NodeId, NodeSet, SegmentId, sysv};
use serde::ser::{self, Serialize};

/// Types in which a number does not count as named.
///
/// - `MemberView`: everybody knows the members, and a view is compared by lives, not by numbers.
/// - `Refusal`: words for people; nobody acts on the number in it.
/// - `NameCheck`: the question itself.
/// - `Term`: names its coordinator together with a count that never comes again.
/// - `LostSegment`: what a former life of this node knew of a segment that it has lost. Nothing is
///   read from it, and nothing sent.
const NOT_NAMED: [&str; 5] = ["MemberView", "Refusal", "NameCheck", "Term", "LostSegment"];

/// Fields in which a number does not count as named.
///
/// - The nodes that have a segment open, as a node was told once: for people, but in the directory,
///   which drops nodes that are gone.
/// - The lives that this node was asked to forget.
const FIELDS_NOT_NAMED: [(&str, &str); 2] =
    [("SegmentInfo", "attached"), ("Membership", "forgotten")];

/// The nodes that `part` names.
pub(crate) fn names<T: Serialize>(part: &T) -> NodeSet {
    Walk::default().through(part).named
}

/// The nodes that a message names. A policy's payload in it is read by the policy alone, so one
/// that has any counts as naming everybody.
pub(crate) fn names_in_message<T: Serialize>(message: &T) -> NodeSet {
    let walk = Walk {
        opaque: true,
        ..Walk::default()
    };
    walk.through(message).named
}

/// The places in `part` that name one of these nodes, as paths of fields, for people.
pub(crate) fn places<T: Serialize>(part: &T, wanted: &NodeSet) -> Vec<(NodeId, String)> {
    let walk = Walk {
        trace: Some(Trace {
            wanted: wanted.clone(),
            ..Trace::default()
        }),
        ..Walk::default()
    };
    let trace = walk.through(part).trace;
    trace.map_or_else(Vec::new, |trace| trace.found)
}

/// The meaning of the integers that come next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    /// No node.
    #[default]
    Plain,
    Node,
    /// Words of a set; the number of the next one.
    Set(u16),
    Segment,
    Object,
}

#[derive(Debug, Default)]
struct Trace {
    wanted: NodeSet,
    path: Vec<&'static str>,
    found: Vec<(NodeId, String)>,
}

/// Paths that are told of; more would help nobody.
const PLACES: usize = 200;

#[derive(Debug, Default)]
struct Walk {
    named: NodeSet,
    mode: Mode,
    /// Payloads of policies count as naming everybody.
    opaque: bool,
    trace: Option<Trace>,
}

/// Every number that a node may have.
fn everybody() -> NodeSet {
    (1..NodeId::LIMIT).map(NodeId).collect()
}

impl Walk {
    fn through<T: Serialize>(mut self, part: &T) -> Self {
        let walked = part.serialize(&mut self);
        debug_assert!(walked.is_ok(), "the walk refuses nothing");
        self
    }

    fn name(&mut self, node: NodeId) {
        if !node.is_valid() {
            return;
        }
        self.named.insert(node);
        if let Some(trace) = &mut self.trace
            && trace.wanted.contains(node)
            && trace.found.len() < PLACES
        {
            trace.found.push((node, trace.path.join(".")));
        }
    }

    fn name_all(&mut self, nodes: &NodeSet) {
        for node in nodes.iter() {
            self.name(node);
        }
    }

    /// Walks through one part, of which the integers are what `mode` says.
    fn part<T: Serialize + ?Sized>(&mut self, mode: Mode, part: &T) -> fmt::Result {
        let before = core::mem::replace(&mut self.mode, mode);
        let walked = part.serialize(&mut *self);
        self.mode = before;
        walked
    }

    /// An element of a list, or a key or value of a map.
    fn element<T: Serialize + ?Sized>(&mut self, part: &T) -> fmt::Result {
        part.serialize(self)
    }

    fn at<T: Serialize + ?Sized>(&mut self, place: &'static str, part: &T) -> fmt::Result {
        self.enter(place);
        let walked = part.serialize(&mut *self);
        self.exit();
        walked
    }

    /// Not compiled again for each type that has parts, as [`Walk::exit`].
    #[inline(never)]
    fn enter(&mut self, place: &'static str) {
        if let Some(trace) = &mut self.trace {
            trace.path.push(place);
        }
    }

    #[inline(never)]
    fn exit(&mut self) {
        if let Some(trace) = &mut self.trace {
            trace.path.pop();
        }
    }

    fn integer(&mut self, value: u64) {
        match self.mode {
            Mode::Plain | Mode::Object => {}
            Mode::Node => self.name(NodeId(value as u16)),
            Mode::Set(word) => {
                self.mode = Mode::Set(word + 1);
                let mut rest = value;
                while rest != 0 {
                    self.name(NodeId(word * 64 + rest.trailing_zeros() as u16));
                    rest &= rest - 1;
                }
            }
            Mode::Segment => self.name(SegmentId(value).home()),
        }
    }

    /// A policy's payload, which only the policy can read. No payload in the state of a node has
    /// sets of nodes in it, but for that of a call of a policy, so everything that could be the
    /// number of a node or of a segment counts.
    fn payload(&mut self, bytes: &[u8]) {
        if self.opaque && !bytes.is_empty() {
            return self.name_all(&everybody());
        }
        for start in 0..bytes.len() {
            let value = varint(&bytes[start..]);
            if let Ok(number) = u16::try_from(value) {
                self.name(NodeId(number));
            }
            self.name(SegmentId(value).home());
        }
    }
}

/// The integer at the beginning of bytes that postcard made.
fn varint(bytes: &[u8]) -> u64 {
    let mut value = 0;
    for (place, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f).wrapping_shl(7 * place as u32);
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

/// A struct or a variant, of which some fields may not count.
struct Fields<'a> {
    walk: &'a mut Walk,
    of: &'static str,
    counts: bool,
}

macro_rules! integers {
    ($($method:ident: $type:ty),*) => {
        $(fn $method(self, value: $type) -> fmt::Result {
            self.integer(value as u64);
            Ok(())
        })*
    };
}

impl<'a> ser::Serializer for &'a mut Walk {
    type Ok = ();
    type Error = fmt::Error;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Fields<'a>;
    type SerializeTupleVariant = Fields<'a>;
    type SerializeMap = Self;
    type SerializeStruct = Fields<'a>;
    type SerializeStructVariant = Fields<'a>;

    integers!(serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_i8: i8, serialize_i16: i16, serialize_i64: i64);

    fn serialize_i32(self, value: i32) -> fmt::Result {
        if self.mode == Mode::Object
            && let Some(home) = sysv::Id(value).home()
        {
            self.name(home);
        }
        Ok(())
    }

    fn serialize_bool(self, _: bool) -> fmt::Result {
        Ok(())
    }

    fn serialize_f32(self, _: f32) -> fmt::Result {
        Ok(())
    }

    fn serialize_f64(self, _: f64) -> fmt::Result {
        Ok(())
    }

    fn serialize_char(self, _: char) -> fmt::Result {
        Ok(())
    }

    fn serialize_str(self, _: &str) -> fmt::Result {
        Ok(())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> fmt::Result {
        self.payload(bytes);
        Ok(())
    }

    fn serialize_none(self) -> fmt::Result {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, part: &T) -> fmt::Result {
        part.serialize(self)
    }

    fn serialize_unit(self) -> fmt::Result {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> fmt::Result {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> fmt::Result {
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        part: &T,
    ) -> fmt::Result {
        match name {
            "NodeId" => self.part(Mode::Node, part),
            "NodeSet" => self.part(Mode::Set(0), part),
            "SegmentId" => self.part(Mode::Segment, part),
            "Id" => self.part(Mode::Object, part),
            name if NOT_NAMED.contains(&name) => Ok(()),
            _ => part.serialize(self),
        }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _: u32,
        variant: &'static str,
        part: &T,
    ) -> fmt::Result {
        if NOT_NAMED.contains(&name) {
            return Ok(());
        }
        // A message from a policy to the same policy elsewhere may have sets of nodes in it.
        let opaque = self.opaque || (name, variant) == ("Call", "Policy");
        let before = core::mem::replace(&mut self.opaque, opaque);
        let walked = self.at(variant, part);
        self.opaque = before;
        walked
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        _: usize,
    ) -> Result<Fields<'a>, fmt::Error> {
        Ok(self.fields(name))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Fields<'a>, fmt::Error> {
        Ok(self.fields(name))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Fields<'a>, fmt::Error> {
        Ok(self.fields(name))
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Fields<'a>, fmt::Error> {
        Ok(self.fields(name))
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

impl Walk {
    fn fields(&mut self, of: &'static str) -> Fields<'_> {
        let counts = !NOT_NAMED.contains(&of);
        Fields {
            walk: self,
            of,
            counts,
        }
    }
}

impl Fields<'_> {
    /// A field without a name.
    fn place<T: Serialize + ?Sized>(&mut self, part: &T) -> fmt::Result {
        self.field("", part)
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, part: &T) -> fmt::Result {
        if self.counts(name) {
            self.walk.at(name, part)
        } else {
            Ok(())
        }
    }

    #[inline(never)]
    fn counts(&self, name: &'static str) -> bool {
        self.counts && !FIELDS_NOT_NAMED.contains(&(self.of, name))
    }
}

/// The methods that serde requires for each kind of compound: every part is walked through, and
/// nothing is left to do at the end.
macro_rules! compounds {
    ($($kind:ident for $walk:ty { $($method:ident($($name:ident)?) by $walks:ident),+ })*) => {
        $(impl ser::$kind for $walk {
            type Ok = ();
            type Error = fmt::Error;

            $(fn $method<T: Serialize + ?Sized>(
                &mut self,
                $($name: &'static str,)?
                part: &T,
            ) -> fmt::Result {
                self.$walks($($name,)? part)
            })+

            fn end(self) -> fmt::Result {
                Ok(())
            }
        })*
    };
}

compounds! {
    SerializeSeq for &mut Walk { serialize_element() by element }
    SerializeTuple for &mut Walk { serialize_element() by element }
    SerializeMap for &mut Walk { serialize_key() by element, serialize_value() by element }
    SerializeTupleStruct for Fields<'_> { serialize_field() by place }
    SerializeTupleVariant for Fields<'_> { serialize_field() by place }
    SerializeStruct for Fields<'_> { serialize_field(name) by field }
    SerializeStructVariant for Fields<'_> { serialize_field(name) by field }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_sorted::SortedMap;
    use pagemesh_wire::peer::{Call, Message, Payload, PolicyMessage, Refusal};
    use pagemesh_wire::{CallId, SyncKey, Term, VectorTime};
    use serde::Serialize;

    fn set(nodes: &[u16]) -> NodeSet {
        nodes.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn every_kind_of_name_is_found_wherever_it_is() {
        #[derive(Serialize)]
        struct Inner {
            pages: u64,
            owner: Option<NodeId>,
        }
        #[derive(Serialize)]
        enum Deep {
            Tuple(u16, NodeId),
            Named { at: Box<Inner> },
        }
        let inner = || Inner {
            pages: 9,
            owner: Some(NodeId(3)),
        };
        assert_eq!(names(&NodeId(127)), set(&[127]));
        assert_eq!(names(&set(&[1, 63, 64, 127])), set(&[1, 63, 64, 127]));
        assert_eq!(names(&SegmentId::new(NodeId(5), 77)), set(&[5]));
        assert_eq!(names(&SegmentId::KEPT_FILES), NodeSet::EMPTY);
        let key = SyncKey {
            segment: SegmentId::new(NodeId(6), 1),
            number: 7,
        };
        assert_eq!(names(&key), set(&[6]));
        assert_eq!(names(&sysv::Id::new(NodeId(8), 3, 4)), set(&[8]));
        let time: VectorTime = [(NodeId(2), 9), (NodeId(4), 1)].into_iter().collect();
        assert_eq!(names(&time), set(&[2, 4]));
        assert_eq!(names(&[Deep::Tuple(77, NodeId(9))]), set(&[9]));
        let at = Box::new(inner());
        assert_eq!(names(&Some(Deep::Named { at })), set(&[3]));
        let map: SortedMap<NodeId, Vec<NodeSet>> = [(NodeId(10), vec![set(&[11])])].into();
        assert_eq!(names(&(map, 12_u16, "n13")), set(&[10, 11]));
    }

    #[test]
    fn words_for_people_members_and_terms_name_nobody() {
        let why = Refusal::NodeGone(NodeId(3));
        assert_eq!(names(&(why, Term(1 << 16 | 4))), NodeSet::EMPTY);
        let view = crate::shell::Shell::of_four(NodeId(1)).view;
        assert_eq!(names(&Some(view)), NodeSet::EMPTY);
    }

    #[test]
    fn a_payload_names_all_that_it_could() {
        let time: VectorTime = [(NodeId(2), 300)].into_iter().collect();
        let said = (time, SegmentId::new(NodeId(90), 1 << 40));
        let named = names(&Payload::of(&said));
        assert!(named.contains(NodeId(2)) && named.contains(NodeId(90)));
        assert!(!named.contains(NodeId(77)), "{named:?}");
        let body = Call::Policy(PolicyMessage {
            segment: SegmentId::new(NodeId(1), 1),
            body: Payload::of(&set(&[77])),
        });
        assert!(names(&body).contains(NodeId(77)));
        let (call, floor) = (CallId(1), CallId(1));
        let message = |body| Message::Call { call, floor, body };
        let key = SyncKey {
            segment: SegmentId::new(NodeId(1), 1),
            number: 7,
        };
        let barrier = Call::Barrier {
            key,
            parties: 2,
            payload: Payload::of(&9_u8),
        };
        assert_eq!(names_in_message(&message(barrier)), everybody());
        let barrier = Call::barrier(key, 2);
        assert_eq!(names_in_message(&message(barrier)), set(&[1]));
    }

    #[test]
    fn places_are_told_of_by_their_paths() {
        let state = crate::sync::Locks::default();
        assert!(places(&state, &everybody()).is_empty());
        let shell = crate::shell::Shell::of_four(NodeId(3));
        let found = places(&shell, &set(&[3]));
        assert!(found.contains(&(NodeId(3), "me".into())), "{found:?}");
    }
}
