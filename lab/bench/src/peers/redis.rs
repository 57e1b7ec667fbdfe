//! The Redis client of `bench peers`, run by an agent: one request at a time on one connection.

use super::super::tcp::Line;
use anyhow::{Result, ensure};
use std::net::SocketAddr;
use std::time::Instant;

/// Bytes of a value: a page.
const VALUE: usize = 4096;

/// The bytes before and after a value of that size in Redis's answer.
const BEFORE: &[u8] = b"$4096\r\n";
const AFTER: &[u8] = b"\r\n";

/// Stores so many pages, and gets each; returns the times of the getting.
pub(crate) fn get(to: SocketAddr, count: u32, spin: bool) -> Result<Vec<u64>> {
    let mut line = Line::to(to, spin)?;
    let page = vec![b'p'; VALUE];
    for index in 0..count {
        line.send(&request(&[b"SET", key(index).as_bytes(), &page]))?;
        ensure!(short(&mut line)? == "+OK", "Redis did not store a page");
    }
    let mut reply = vec![0; BEFORE.len() + VALUE + AFTER.len()];
    let mut times = Vec::with_capacity(count as usize);
    for index in 0..count {
        let request = request(&[b"GET", key(index).as_bytes()]);
        let start = Instant::now();
        line.send(&request)?;
        line.receive(&mut reply)?;
        times.push(start.elapsed().as_nanos() as u64);
        ensure!(reply.starts_with(BEFORE), "Redis answered something else");
    }
    Ok(times)
}

/// Lets one number grow; returns the time of each.
pub(crate) fn add(to: SocketAddr, count: u32, spin: bool) -> Result<Vec<u64>> {
    let mut line = Line::to(to, spin)?;
    let request = request(&[b"INCR", b"number"]);
    let mut times = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let start = Instant::now();
        line.send(&request)?;
        let answer = short(&mut line)?;
        times.push(start.elapsed().as_nanos() as u64);
        ensure!(answer.starts_with(':'), "Redis answered {answer}");
    }
    Ok(times)
}

fn key(index: u32) -> String {
    format!("page:{index}")
}

/// An array of strings.
fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// An answer of one line.
fn short(line: &mut Line) -> Result<String> {
    let (mut buffer, mut got) = ([0; 128], 0);
    while !buffer[..got].ends_with(b"\r\n") {
        ensure!(got < buffer.len(), "Redis answers too long a line");
        got += line.some(&mut buffer[got..])?;
    }
    Ok(String::from_utf8_lossy(&buffer[..got - 2]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_an_array_of_strings() {
        let bytes = request(&[b"GET", b"page:7"]);
        assert_eq!(bytes, b"*2\r\n$3\r\nGET\r\n$6\r\npage:7\r\n");
    }
}
