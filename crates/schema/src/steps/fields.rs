//! Changes to the fields of structures in a document, wherever they are in it.

use rmpv::Value;

/// Adds fields to every structure, however deep, that has all fields named in `known`.
pub(super) fn insert_wherever(value: &mut Value, known: &[&str], fields: &[(&str, Value)]) {
    match value {
        Value::Array(values) => {
            for value in values {
                insert_wherever(value, known, fields);
            }
        }
        Value::Map(entries) => {
            for (_, value) in entries.iter_mut() {
                insert_wherever(value, known, fields);
            }
            let has = |wanted: &&str| {
                entries
                    .iter()
                    .any(|(name, _)| name.as_str() == Some(wanted))
            };
            if known.iter().all(has) {
                let new = fields.iter();
                entries.extend(new.map(|(name, value)| ((*name).into(), value.clone())));
            }
        }
        _ => {}
    }
}

/// Whether a field has this value in some structure, however deep.
pub(super) fn has(value: &Value, field: (&str, &Value)) -> bool {
    match value {
        Value::Array(values) => values.iter().any(|value| has(value, field)),
        Value::Map(entries) => entries.iter().any(|(name, value)| {
            (name.as_str(), value) == (Some(field.0), field.1) || has(value, field)
        }),
        _ => false,
    }
}

/// Removes a field from every structure that has these others, however deep.
pub(super) fn remove_beside(value: &mut Value, known: &[&str], field: &str) {
    change_beside(value, known, &|fields| {
        fields.retain(|(name, _)| name.as_str() != Some(field));
    });
}

/// The fields of a structure, by name.
pub(super) type Fields = Vec<(Value, Value)>;

/// Changes the fields of every structure that has these, however deep.
pub(super) fn change_beside(value: &mut Value, known: &[&str], change: &dyn Fn(&mut Fields)) {
    match value {
        Value::Array(values) => {
            for value in values {
                change_beside(value, known, change);
            }
        }
        Value::Map(entries) => {
            let has = |name: &&str| entries.iter().any(|(key, _)| key.as_str() == Some(name));
            if known.iter().all(has) {
                change(entries);
            }
            for (_, value) in entries {
                change_beside(value, known, change);
            }
        }
        _ => {}
    }
}

/// Removes fields from every structure, however deep.
pub(super) fn remove_wherever(value: &mut Value, fields: &[&str]) {
    match value {
        Value::Array(values) => {
            for value in values {
                remove_wherever(value, fields);
            }
        }
        Value::Map(entries) => {
            entries.retain(|(name, _)| name.as_str().is_none_or(|name| !fields.contains(&name)));
            for (_, value) in entries {
                remove_wherever(value, fields);
            }
        }
        _ => {}
    }
}

pub(super) fn map<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let fields = fields.into_iter();
    Value::Map(fields.map(|(name, value)| (name.into(), value)).collect())
}

/// Adds a field to a part of the node.
pub(super) fn insert(node: &mut Value, part: &str, name: &str, value: Value) -> Result<(), String> {
    let parts = node.as_map_mut_of(part)?;
    parts.push((name.into(), value));
    Ok(())
}

pub(super) trait Part {
    /// A part of the node, or of a part.
    fn part_mut(&mut self, part: &str) -> Result<&mut Value, String>;

    /// The fields of a part of the node.
    fn as_map_mut_of(&mut self, part: &str) -> Result<&mut Fields, String>;
}

impl Part for Value {
    fn part_mut(&mut self, part: &str) -> Result<&mut Value, String> {
        let Self::Map(parts) = self else {
            return Err("the node has no parts".into());
        };
        let found = parts
            .iter_mut()
            .find(|(name, _)| name.as_str() == Some(part));
        let (_, value) = found.ok_or_else(|| format!("the node has no {part}"))?;
        Ok(value)
    }

    fn as_map_mut_of(&mut self, part: &str) -> Result<&mut Fields, String> {
        match self.part_mut(part)? {
            Self::Map(fields) => Ok(fields),
            _ => Err(format!("the node has no {part}")),
        }
    }
}
