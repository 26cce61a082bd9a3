//! Schemas of what is taken and answered, by name, as the types themselves give them.

use std::collections::BTreeSet;

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use tidegate::algorithm::NUMBER_MAX;

use crate::http::openapi::Parameter;

/// Where schemas stand in the document.
const PLACE: &str = "/components/schemas";

/// What may be left out of a body is always there in an answer, so the two are different schemas of one type.
pub(crate) struct Schemas {
    /// Whether bodies are described. Routes need the names of parameters alone, and a server makes its routes at each start.
    is_described: bool,
    taken: SchemaGenerator,
    answered: SchemaGenerator,
}

impl Schemas {
    pub(super) fn new(is_described: bool) -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = PLACE.into();
                settings.meta_schema = None;
            })
        };
        Self {
            is_described,
            taken: settings().for_deserialize().into_generator(),
            answered: settings().for_serialize().into_generator(),
        }
    }

    /// Returns the schema of a request's body, or null where bodies are not described.
    pub(super) fn taken<T: JsonSchema>(&mut self) -> Value {
        if self.is_described { json!(self.taken.subschema_for::<T>()) } else { Value::Null }
    }

    /// Returns the schema of an answer's body, or null where bodies are not described.
    pub(super) fn answered<T: JsonSchema>(&mut self) -> Value {
        if self.is_described { json!(self.answered.subschema_for::<T>()) } else { Value::Null }
    }

    /// The fields of a type that is read from the query of an address.
    pub(super) fn fields<T: JsonSchema>(&mut self) -> Vec<Parameter> {
        let whole = T::json_schema(&mut self.taken);
        let required = whole.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        let fields = whole.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        let fields = fields.into_iter().map(|(name, mut schema)| {
            let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
            Parameter {
                place: "query",
                is_required: required.iter().any(|required| required == &name),
                description: description.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned(),
                schema: without_null(schema),
                name,
            }
        });
        fields.collect()
    }

    /// All schemas that were asked for, and those that they refer to.
    pub(super) fn by_name(&mut self) -> Map<String, Value> {
        let mut all = self.answered.take_definitions(true);
        let taken = self.taken.take_definitions(true);
        let fields = |schema: &Value| schema["properties"].as_object().map(|fields| fields.keys().cloned().collect());
        let is_one = |(name, schema): (&String, &Value)| {
            all.get(name).is_none_or(|other| fields(other) == fields(schema) as Option<BTreeSet<String>>)
        };
        debug_assert!(taken.iter().all(is_one), "two types have one name");
        // A type that is both sent and answered is described as it may be sent, which allows all that we answer.
        all.extend(taken);
        all
    }
}

/// A parameter is there or not; none is `null`.
fn without_null(mut schema: Value) -> Value {
    let is_null = |part: &Value| part == "null" || part["type"] == "null";
    if let Some(types) = schema.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|part| !is_null(part));
        if let [only] = types.as_slice() {
            schema["type"] = only.clone();
        }
    }
    for choices in ["anyOf", "enum"] {
        if let Some(choices) = schema.get_mut(choices).and_then(Value::as_array_mut) {
            choices.retain(|part| !part.is_null() && !is_null(part));
        }
    }
    if let Some(object) = schema.as_object_mut() {
        object.retain(|name, value| name != "default" || !value.is_null());
    }
    schema
}

/// Gives whole numbers the bounds that they have, in place of formats that only Rust knows: no number is larger than what
/// JavaScript reads exactly.
pub(super) fn bound_numbers(value: &mut Value) {
    match value {
        Value::Object(object) => {
            let format = object.get("format").and_then(Value::as_str);
            let bound = match format {
                Some("uint8") => Some(u64::from(u8::MAX)),
                Some("uint16") => Some(u64::from(u16::MAX)),
                Some("uint32") => Some(u64::from(u32::MAX)),
                Some("uint64" | "uint" | "int64") => Some(NUMBER_MAX),
                _ => None,
            };
            if let Some(bound) = bound {
                object.remove("format");
                object.entry("maximum").or_insert(bound.into());
            }
            object.values_mut().for_each(bound_numbers);
        }
        Value::Array(items) => items.iter_mut().for_each(bound_numbers),
        _ => {}
    }
}
