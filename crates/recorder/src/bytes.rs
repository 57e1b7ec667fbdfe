//! Byte strings as serde should see them: at once, not one by one.

use serde::Serializer;

/// For `#[serde(serialize_with)]`.
pub(crate) fn serialize<S: Serializer>(
    bytes: impl AsRef<[u8]>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes.as_ref())
}
