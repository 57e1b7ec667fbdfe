//! Steps from each version of the schema to the next.

use rmpv::Value;

/// Turns the node of one version into that of the next; the error says what is missing.
pub type Step = fn(&mut Value) -> Result<(), String>;

/// The first step leads from [`OLDEST`](super::OLDEST) to the version after it.
pub(super) const STEPS: &[Step] = &[add_global_memory, add_holds];

/// Version 3 has segments that are held: if nothing is there, none is.
fn add_holds(_: &mut Value) -> Result<(), String> {
    Ok(())
}

/// Version 2 has global memory: no pages are lent, no epoch has begun, no budget is known.
fn add_global_memory(node: &mut Value) -> Result<(), String> {
    let budgets = map([
        ("memory", u32::MAX.into()),
        ("lend", 0.into()),
        ("placement", "Epoch".into()),
    ]);
    let memory = map([
        ("budgets", budgets),
        ("used", 0.into()),
        ("wants_plan", false.into()),
        ("weights", Value::Array(Vec::new())),
        ("min_age", map([("secs", 0.into()), ("nanos", 0.into())])),
        ("until", 0.into()),
        ("chance", 0.into()),
        ("refusing", map([])),
    ]);
    let donor = map([("pages", map([])), ("droppable", Value::Array(Vec::new()))]);
    let epochs = map([
        ("current", Value::Nil),
        ("began", 0.into()),
        ("taken", 0.into()),
        ("collecting", Value::Nil),
        ("asked", Value::Nil),
    ]);
    insert(node, "shell", "memory", memory)?;
    insert(
        node,
        "services",
        "global",
        map([("donor", donor), ("epochs", epochs)]),
    )
}

fn map<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let fields = fields.into_iter();
    Value::Map(fields.map(|(name, value)| (name.into(), value)).collect())
}

/// Adds a field to a part of the node.
fn insert(node: &mut Value, part: &str, name: &str, value: Value) -> Result<(), String> {
    let parts = node.as_map_mut_of(part)?;
    parts.push((name.into(), value));
    Ok(())
}

trait Part {
    /// The fields of a part of the node.
    fn as_map_mut_of(&mut self, part: &str) -> Result<&mut Vec<(Value, Value)>, String>;
}

impl Part for Value {
    fn as_map_mut_of(&mut self, part: &str) -> Result<&mut Vec<(Value, Value)>, String> {
        let Self::Map(parts) = self else {
            return Err("the node has no parts".into());
        };
        let found = parts
            .iter_mut()
            .find(|(name, _)| name.as_str() == Some(part));
        match found {
            Some((_, Self::Map(fields))) => Ok(fields),
            _ => Err(format!("the node has no {part}")),
        }
    }
}
