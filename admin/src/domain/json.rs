//! JSON pointers of what the engine and the JSON reader name, and errors at them.

use tidegate::formats::JsonError;
use tidegate_api::FieldError;

/// Describes a text that is not JSON, or not the JSON that is read here.
pub(crate) fn json_error(error: JsonError) -> FieldError {
    match error {
        JsonError::Syntax(problem) => FieldError::invalid("", format!("the body is not JSON: {problem}")),
        JsonError::Field { pointer, message } => FieldError::invalid(pointer, message),
    }
}

/// `limits[0].burst` as a JSON pointer: `/limits/0/burst`. A `?` stands where the reader did not get to know the name.
pub(crate) fn pointer_of(path: &str) -> String {
    path.split(['.', '[']).map(|part| part.trim_end_matches(']')).filter(|part| !matches!(*part, "" | "?")).fold(
        String::new(),
        |mut pointer, part| {
            pointer.push('/');
            pointer.push_str(part);
            pointer
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_pointers() {
        assert_eq!(pointer_of("limits[0].burst"), "/limits/0/burst");
        assert_eq!(pointer_of(".limits[12]"), "/limits/12");
        assert_eq!(pointer_of(""), "");
    }
}
