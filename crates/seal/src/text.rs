//! Keys and tokens as text that people can copy: base 32 without datagrams that look like digits.

/// Why a text is not a key or token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadText {
    /// The text is something else.
    #[error("this is no PageMesh key or token")]
    Foreign,
    /// A part of the text is missing or changed.
    #[error("damaged: copy it again, all of it")]
    Damaged,
    /// There is no text.
    #[error("there is no key; make one with `pagemesh key new`")]
    Empty,
}

const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Encodes bytes, five bits per digit.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut held, mut bits) = (0_u32, 0);
    for byte in bytes {
        held = held << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(DIGITS[(held >> bits) as usize & 31]));
        }
    }
    if bits > 0 {
        text.push(char::from(DIGITS[(held << (5 - bits)) as usize & 31]));
    }
    text
}

/// Decodes the output of [`encode`].
pub(crate) fn decode(text: &str) -> Result<Vec<u8>, BadText> {
    let mut bytes = Vec::with_capacity(text.len() * 5 / 8);
    let (mut held, mut bits) = (0_u32, 0);
    for outgoing in text.bytes() {
        let digit = DIGITS.iter().position(|digit| *digit == outgoing);
        held = held << 5 | digit.ok_or(BadText::Damaged)? as u32;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
            held &= (1 << bits) - 1;
        }
    }
    // The remaining bits must be padding, which is zero and shorter than a digit.
    if bits >= 5 || held != 0 {
        return Err(BadText::Damaged);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decodes_what_it_encodes(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(decode(&encode(&bytes)).unwrap(), bytes);
        }

        #[test]
        fn one_text_for_one_value(text in "[0-9a-z]{0,40}") {
            if let Ok(bytes) = decode(&text) {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
