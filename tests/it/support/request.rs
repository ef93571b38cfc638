//! Reading requests, as the scripted server does.

use std::io::{self, Read, Write};

use serde_json::Value;

/// The largest request head accepted.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// A client's connection, with or without TLS.
pub(super) trait Wire: Read + Write {}
impl<T: Read + Write> Wire for T {}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    /// Counts all requests of the server from 1.
    pub(crate) ordinal: usize,
    /// Counts the connections of the server from 1.
    pub(crate) connection: usize,
    pub(crate) method: String,
    /// The request target as sent.
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Recorded {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON, or null.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The last message of a Chat request.
    pub(crate) fn last_message(&self) -> Value {
        self.json()["messages"].as_array().and_then(|list| list.last().cloned()).unwrap_or(Value::Null)
    }
}

/// Reads one request; `None` when the client closed between requests. `pending` keeps bytes read too far.
pub(super) fn read_request(wire: &mut dyn Wire, pending: &mut Vec<u8>) -> io::Result<Option<Recorded>> {
    let head_end = loop {
        if let Some(at) = find(pending, b"\r\n\r\n") {
            break at + 4;
        }
        if pending.len() > HEAD_BYTES_MAX {
            return Err(io::Error::other("request head too large"));
        }
        if read_some(wire, pending)? == 0 {
            return Ok(None);
        }
    };
    let head: Vec<u8> = pending.drain(..head_end).collect();
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or("").split(' ');
    let (method, path) = (words.next().unwrap_or("").to_owned(), words.next().unwrap_or("").to_owned());
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut request = Recorded { ordinal: 0, connection: 0, method, path, headers, body: Vec::new() };
    if request.header("expect").is_some() {
        wire.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    if request.header("transfer-encoding").is_some() {
        request.body = read_chunked(wire, pending)?;
    } else {
        let length = request.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        request.body = take(wire, pending, length)?;
    }
    Ok(Some(request))
}

fn read_chunked(wire: &mut dyn Wire, pending: &mut Vec<u8>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = loop {
            if let Some(at) = find(pending, b"\r\n") {
                break at;
            }
            if read_some(wire, pending)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        let line: Vec<u8> = pending.drain(..line_end + 2).collect();
        let text = String::from_utf8_lossy(&line).trim().to_owned();
        let size = usize::from_str_radix(&text, 16).map_err(io::Error::other)?;
        let chunk = take(wire, pending, size + 2)?;
        body.extend_from_slice(&chunk[..size]);
        if size == 0 {
            return Ok(body);
        }
    }
}

fn take(wire: &mut dyn Wire, pending: &mut Vec<u8>, length: usize) -> io::Result<Vec<u8>> {
    while pending.len() < length {
        if read_some(wire, pending)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(pending.drain(..length).collect())
}

fn read_some(wire: &mut dyn Wire, pending: &mut Vec<u8>) -> io::Result<usize> {
    let mut buffer = [0_u8; 16 * 1024];
    let count = wire.read(&mut buffer)?;
    pending.extend_from_slice(&buffer[..count]);
    Ok(count)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
