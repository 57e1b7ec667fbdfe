//! Clients that behave, and clients that do not.

use super::*;
use proptest::prelude::*;
use std::cell::RefCell;
use std::io::{Cursor, Read, Write};

/// A device in memory; a byte may be broken.
struct Memory {
    bytes: RefCell<Vec<u8>>,
    broken: Option<u64>,
}

impl Memory {
    fn new(size: usize) -> Self {
        Self {
            bytes: RefCell::new(vec![0; size]),
            broken: None,
        }
    }

    fn check(&self, offset: u64, length: usize) -> io::Result<()> {
        let range = offset..offset + length as u64;
        match self.broken {
            Some(byte) if range.contains(&byte) => Err(io::ErrorKind::Other.into()),
            _ => Ok(()),
        }
    }
}

impl Store for Memory {
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.check(offset, bytes.len())?;
        let at = offset as usize;
        bytes.copy_from_slice(&self.bytes.borrow()[at..at + bytes.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check(offset, bytes.len())?;
        let at = offset as usize;
        self.bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn trim(&self, offset: u64, length: u64) -> io::Result<()> {
        assert!(offset + length <= self.bytes.borrow().len() as u64);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// What a client sends, all of it at once, and what it gets.
struct Line {
    input: Cursor<Vec<u8>>,
    output: Vec<u8>,
}

impl Read for Line {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.input.read(bytes)
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const SIZE: usize = 1 << 20;

fn export(read_only: bool) -> Export {
    Export {
        name: "disk".to_owned(),
        size: SIZE as u64,
        read_only,
    }
}

/// A whole conversation: what the server sent, and how it ended.
fn converse(input: Vec<u8>, export: &Export, memory: &Memory) -> (Vec<u8>, Result<(), Fault>) {
    let mut line = Line {
        input: Cursor::new(input),
        output: Vec::new(),
    };
    let end = match negotiate(&mut line, export) {
        Ok(Agreed::Transmission { structured }) => transmit(&mut line, export, structured, memory),
        Ok(Agreed::Nothing) => Ok(()),
        Err(fault) => Err(fault),
    };
    (line.output, end)
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

fn go(name: &[u8], wishes: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name);
    data.extend((wishes.len() as u16).to_be_bytes());
    wishes
        .iter()
        .for_each(|wish| data.extend(wish.to_be_bytes()));
    option(7, &data)
}

fn request(flags: u16, command: u16, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(0x0123_4567_89ab_cdef_u64.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

/// The beginning up to the first request, structured or not.
fn begun(structured: bool) -> Vec<u8> {
    let mut bytes = 3_u32.to_be_bytes().to_vec();
    if structured {
        bytes.extend(option(8, &[]));
    }
    bytes.extend(go(b"disk", &[3]));
    bytes
}

/// What the server answers to requests.
fn answers(structured: bool, requests: &[Vec<u8>], export: &Export, memory: &Memory) -> Vec<u8> {
    let (negotiation, end) = converse(begun(structured), export, memory);
    end.unwrap();
    let (all, end) = converse(
        [begun(structured), requests.concat()].concat(),
        export,
        memory,
    );
    end.unwrap();
    all.strip_prefix(&negotiation[..]).unwrap().to_vec()
}

fn simple(error: u32) -> Vec<u8> {
    let mut bytes = 0x6744_6698_u32.to_be_bytes().to_vec();
    bytes.extend(error.to_be_bytes());
    bytes.extend(0x0123_4567_89ab_cdef_u64.to_be_bytes());
    bytes
}

#[test]
fn what_is_written_is_read() {
    for structured in [false, true] {
        let memory = Memory::new(SIZE);
        let data: Vec<u8> = (0..600_000_u32)
            .map(|number| (number % 251) as u8)
            .collect();
        let mut write = request(1, 1, 1000, 600_000);
        write.extend(&data);
        let requests = [
            write,
            request(0, 3, 0, 0),
            request(0, 4, 0, 512),
            request(2, 6, 1001, 2),
            request(0, 0, 1000, 600_000),
            request(0, 2, 0, 0),
        ];
        let said = answers(structured, &requests, &export(false), &memory);
        let head = if structured { 28 } else { 16 };
        assert_eq!(said[..64], simple(0).repeat(4));
        let read = &said[64 + head..];
        assert_eq!((read[0], read[1], read[2]), (data[0], 0, 0));
        assert!(read[3..] == data[3..]);
    }
}

#[test]
fn names_that_are_not_here_are_refused() {
    let memory = Memory::new(SIZE);
    let flags = 3_u32.to_be_bytes().to_vec();
    let (said, end) = converse(
        [flags.clone(), go(b"other", &[])].concat(),
        &export(false),
        &memory,
    );
    assert!(matches!(end, Err(Fault::Connection(_))), "{end:?}");
    assert_eq!(said[30..34], ((1_u32 << 31) + 6).to_be_bytes());
    let (_, end) = converse(
        [flags, option(1, b"other")].concat(),
        &export(false),
        &memory,
    );
    assert!(matches!(end, Err(Fault::UnknownExport)), "{end:?}");
}

#[test]
fn the_oldest_way_to_begin_works() {
    let memory = Memory::new(SIZE);
    for (flags, zeros) in [(1_u32, 124), (3, 0)] {
        let input = [flags.to_be_bytes().to_vec(), option(1, b"")].concat();
        let (said, end) = converse(input, &export(true), &memory);
        end.unwrap();
        assert_eq!(said.len(), 18 + 10 + zeros);
        assert_eq!(said[18..26], (SIZE as u64).to_be_bytes());
        assert_eq!(said[27] & 2, 2, "read-only");
    }
}

#[test]
fn requests_that_make_no_sense_get_an_error_and_change_nothing() {
    let memory = Memory::new(SIZE);
    let size = SIZE as u64;
    for (bad, number) in [
        (request(0, 0, size, 1), 22),
        (request(0, 0, u64::MAX, 2), 22),
        (request(0, 0, 0, 0), 22),
        (request(0, 0, 0, u32::MAX), 22),
        (request(0, 9, 0, 1), 22),
        (request(1 << 9, 3, 0, 1), 22),
        (request(0, 6, size - 1, 2), 28),
        (request(0, 4, 0, u32::MAX), 28),
        ([request(0, 1, size - 1, 2), vec![7; 2]].concat(), 28),
    ] {
        let said = answers(false, &[bad, request(0, 3, 0, 0)], &export(false), &memory);
        assert_eq!(said, [simple(number), simple(0)].concat());
    }
    let write = [request(0, 1, 0, 2), vec![7; 2]].concat();
    let said = answers(false, &[write], &export(true), &memory);
    assert_eq!(said, simple(1));
    assert!(memory.bytes.borrow().iter().all(|byte| *byte == 0));
}

#[test]
fn one_request_has_a_longest_length() {
    let vast = Export {
        size: 1 << 40,
        ..export(false)
    };
    let memory = Memory::new(0);
    let said = answers(false, &[request(0, 0, 0, MAX_REQUEST + 1)], &vast, &memory);
    assert_eq!(said, simple(75));
}

#[test]
fn a_byte_that_cannot_be_read_is_an_error_or_the_end() {
    let mut memory = Memory::new(SIZE);
    memory.broken = Some(5);
    let said = answers(false, &[request(0, 0, 0, 10)], &export(false), &memory);
    assert_eq!(said, simple(5));
    let said = answers(true, &[request(0, 0, 0, 10)], &export(false), &memory);
    assert_eq!(said[20..24], 5_u32.to_be_bytes());
    memory.broken = Some(PIECE as u64);
    let read = request(0, 0, 0, PIECE as u32 + 1);
    let (_, end) = converse([begun(false), read].concat(), &export(false), &memory);
    assert!(matches!(end, Err(Fault::Store(_))), "{end:?}");
}

#[test]
fn what_is_not_the_protocol_ends_the_connection() {
    let memory = Memory::new(SIZE);
    for input in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        [begun(false), vec![1; 28]].concat(),
        [3_u32.to_be_bytes().to_vec(), vec![1; 28]].concat(),
        [3_u32.to_be_bytes().to_vec(), option(3, &[]).repeat(1000)].concat(),
    ] {
        let (_, end) = converse(input, &export(false), &memory);
        assert!(matches!(end, Err(Fault::Foreign(_))), "{end:?}");
    }
}

/// Bytes that begin well, most of the time.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let noise = prop::collection::vec(any::<u8>(), 0..64);
    let numbers = prop_oneof![0..12_u32, any::<u32>()];
    let lengths = prop_oneof![0..64_u32, any::<u32>()];
    let options = (numbers, lengths, noise.clone()).prop_map(|(number, length, data)| {
        let mut bytes = option(number, &data);
        bytes[12..16].copy_from_slice(&length.to_be_bytes());
        bytes
    });
    let offsets = prop_oneof![0..2 * SIZE as u64, any::<u64>()];
    let spans = prop_oneof![0..128_u32, 0..2 * SIZE as u32, any::<u32>()];
    let requests = (0..8_u16, 0..10_u16, offsets, spans, noise.clone()).prop_map(
        |(flags, command, offset, length, data)| {
            [request(flags, command, offset, length), data].concat()
        },
    );
    let good = prop_oneof![
        Just(option(8, &[])),
        Just(go(b"", &[0, 1, 3])),
        Just(option(3, &[]))
    ];
    let parts = prop_oneof![3 => options, 6 => requests, 3 => good, 1 => noise];
    (
        any::<bool>(),
        any::<bool>(),
        prop::collection::vec(parts, 0..8),
    )
        .prop_map(|(well, structured, parts)| {
            let start = if well {
                begun(structured)
            } else {
                3_u32.to_be_bytes().to_vec()
            };
            [start, parts.concat()].concat()
        })
}

proptest! {
    /// The store asserts that ranges lie in the device; what is sent is bounded by what was asked.
    #[test]
    fn hostile_clients_harm_nobody(input in hostile(), read_only: bool, broken: bool) {
        let mut memory = Memory::new(SIZE);
        memory.broken = broken.then_some(77);
        let (said, _) = converse(input, &export(read_only), &memory);
        prop_assert!(said.len() <= 16 * SIZE);
        if read_only {
            prop_assert!(memory.bytes.borrow().iter().all(|byte| *byte == 0));
        }
    }
}
