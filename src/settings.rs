//! Reads settings from flags, `TIDEGATE_*` variables and a file. Settings of the file that neither a flag nor a variable gives are
//! appended to the command line, so one parser checks all three.

use std::{ffi::OsString, fs, io, path::PathBuf};

use clap::{ArgAction, ArgMatches, CommandFactory, FromArgMatches, error::ErrorKind, parser::ValueSource};
use tidegate::formats::read_toml;
use toml::{Table, Value};

use crate::{
    cli::{Cli, Command},
    output::CommandError,
};

/// The file that is read if none is named and this one exists.
const FILE: &str = "tidegate.toml";
/// The command that runs if none is given.
const DEFAULT_COMMAND: &str = "serve";
const PREFIX: &str = "TIDEGATE_";

/// The reason why there are no settings.
pub(crate) enum SettingsError {
    /// The command line is invalid, or asks for help.
    Usage(clap::Error),
    /// The file is invalid.
    File(CommandError),
}

/// Reads the command line and the file.
pub(crate) fn read(mut line: Vec<OsString>) -> Result<Cli, SettingsError> {
    let parse = |line: &[OsString]| {
        Cli::command().subcommand_required(false).arg_required_else_help(false).try_get_matches_from(line)
    };
    let mut matches = match parse(&line) {
        Ok(matches) if matches.subcommand_name().is_some() => matches,
        outcome => {
            let mut serving = line.clone();
            serving.insert(1.min(line.len()), DEFAULT_COMMAND.into());
            match (outcome, parse(&serving)) {
                (Err(error), _) if error.kind() != ErrorKind::UnknownArgument => {
                    return Err(SettingsError::Usage(error));
                }
                // There are only settings, as in `tidegate --data FOLDER`.
                (_, Ok(matches)) => {
                    line = serving;
                    matches
                }
                (Err(error), Err(served)) if served.kind() == ErrorKind::UnknownArgument => {
                    return Err(SettingsError::Usage(error));
                }
                (_, Err(served)) => return Err(SettingsError::Usage(served)),
            }
        }
    };
    if let Some((name, table)) = config_file(&matches)? {
        let failure = |why: String| SettingsError::File(CommandError::of_file(&name, why));
        let more = missing_flags(&matches, &table).map_err(failure)?;
        let end = line.iter().position(|argument| argument == "--").unwrap_or(line.len());
        line.splice(end..end, more);
        // The command line alone was valid, so the error is in the file.
        matches = parse(&line).map_err(|error| failure(error.to_string()))?;
    }
    let mut cli = Cli::from_arg_matches(&matches).map_err(SettingsError::Usage)?;
    let control = match &mut cli.command {
        Command::Serve(serve) => Some(&mut serve.control),
        Command::Admin { command: None, control, .. } => Some(control),
        _ => None,
    };
    if let (Some(control), Some((_, given))) = (control, matches.subcommand()) {
        control.is_data_given = given.value_source("data").is_some_and(|source| source != ValueSource::DefaultValue);
    }
    Ok(cli)
}

/// Reads the file. Returns its name and content, or `None` if there is no file.
fn config_file(matches: &ArgMatches) -> Result<Option<(String, Table)>, SettingsError> {
    let named = matches.get_one::<PathBuf>("config");
    let path = named.cloned().unwrap_or_else(|| FILE.into());
    let name = path.display().to_string();
    let failure = |why: String| SettingsError::File(CommandError::of_file(&name, why));
    match fs::read_to_string(&path) {
        Ok(text) => {
            // The problem never shows a string of the file, which may be a password.
            let table = read_toml(&text).map_err(|problem| failure(problem.to_string()))?;
            Ok(Some((name, table)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(failure("it is not UTF-8 text; save it as UTF-8".to_owned()))
        }
        Err(error) => Err(failure(error.to_string())),
    }
}

/// Returns the settings of the file that neither a flag nor a variable gives, as flags.
fn missing_flags(matches: &ArgMatches, table: &Table) -> Result<Vec<OsString>, String> {
    let command = Cli::command();
    if let Some(unknown) = table.keys().find(|setting_name| !has_setting(&command, setting_name)) {
        return Err(format!(
            "{unknown}: no command has this setting; `tidegate COMMAND --help` lists the settings of a command"
        ));
    }
    let (mut command, mut matches, mut more) = (&command, matches, Vec::new());
    loop {
        for argument in command.get_arguments() {
            let given = |id| {
                matches.try_contains_id(id).is_ok_and(|present| present)
                    && matches.value_source(id) != Some(ValueSource::DefaultValue)
            };
            let setting_name = setting_name(argument).unwrap_or_default();
            let Some((value, long)) = table.get(&setting_name).zip(argument.get_long()) else { continue };
            if given(argument.get_id().as_str()) {
                continue;
            }
            match (value, argument.get_action()) {
                (Value::Array(values), ArgAction::Append) => {
                    for value in values {
                        more.extend(flag(&setting_name, long, value, false)?);
                    }
                }
                (value, action) => more.extend(flag(&setting_name, long, value, matches!(action, ArgAction::SetTrue))?),
            }
        }
        let below = matches.subcommand().and_then(|(name, below)| Some((command.find_subcommand(name)?, below)));
        match below {
            Some(below) => (command, matches) = below,
            None => return Ok(more),
        }
    }
}

/// Returns the name of a setting in the file: that of its variable, without the prefix.
fn setting_name(argument: &clap::Arg) -> Option<String> {
    let variable = argument.get_env()?.to_str()?;
    let setting_name = variable.strip_prefix(PREFIX).unwrap_or(variable).to_ascii_lowercase();
    (setting_name != "config").then_some(setting_name)
}

/// Returns whether this command, or one below it, has the setting.
fn has_setting(command: &clap::Command, name: &str) -> bool {
    command.get_arguments().any(|argument| setting_name(argument).is_some_and(|setting_name| setting_name == name))
        || command.get_subcommands().any(|below| has_setting(below, name))
}

/// Returns a setting of the file as a flag.
fn flag(setting_name: &str, long: &str, value: &Value, is_switch: bool) -> Result<Option<OsString>, String> {
    let text = match value {
        Value::Boolean(on) if is_switch => return Ok(on.then(|| format!("--{long}").into())),
        Value::String(text) if !is_switch => text.clone(),
        Value::Integer(number) if !is_switch => number.to_string(),
        other => {
            let wanted = if is_switch { "true or false" } else { "a text or a whole number" };
            let found = match other {
                Value::Boolean(flag) => format!("`{flag}`"),
                Value::Integer(number) => format!("`{number}`"),
                Value::Float(number) => format!("`{number}`"),
                // It may be a password.
                Value::String(_) => "a text".to_owned(),
                Value::Array(_) => "a list".to_owned(),
                Value::Table(_) => "a table".to_owned(),
                Value::Datetime(_) => "a date without quotes".to_owned(),
            };
            return Err(format!("{setting_name}: {found} stands here; write {wanted}"));
        }
    };
    Ok(Some(format!("--{long}={text}").into()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_file_of_another_encoding_is_named_as_such() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("latin.toml");
        fs::write(&path, b"# \xfc").expect("it is written");
        let line = vec!["tidegate".into(), "serve".into(), format!("--config={}", path.display()).into()];
        let Err(SettingsError::File(CommandError(why))) = read(line) else { panic!("it is refused") };
        assert!(why.ends_with("latin.toml: it is not UTF-8 text; save it as UTF-8"), "{why}");
    }

    /// `docs/configuration.md` has a row for each setting of the three commands that serve, with its default, and no other.
    #[test]
    fn the_document_lists_every_setting() {
        let document = include_str!("../docs/configuration.md");
        let rows = document.lines().filter_map(|line| {
            let [_, key, default, ..] = line.split('|').map(str::trim).collect::<Vec<_>>()[..] else { return None };
            Some((key.strip_prefix('`')?.strip_suffix('`')?, default.trim_matches('`')))
        });
        let documented: BTreeMap<&str, &str> = rows.filter(|(key, _)| !key.starts_with('-')).collect();
        let root = Cli::command();
        let mut known = BTreeMap::new();
        for command in ["serve", "admin", "node"] {
            for argument in root.find_subcommand(command).expect("a command").get_arguments() {
                let Some(name) = setting_name(argument) else { continue };
                let is_switch = matches!(argument.get_action(), ArgAction::SetTrue);
                let defaults = argument.get_default_values().iter().filter(|_| !is_switch);
                let defaults: Vec<_> = defaults.map(|value| value.to_string_lossy()).collect();
                known.insert(name, defaults.join(","));
            }
        }
        assert!(known.len() > 60, "the settings were not found: {known:?}");
        let known = known.iter().map(|(key, default)| (key.as_str(), default.as_str())).collect::<BTreeMap<_, _>>();
        assert_eq!(documented, known);
    }

    /// The data directory beside a `PostgreSQL` database is used only if a flag, a variable or the file gives it.
    #[test]
    fn a_data_directory_is_given_or_default() {
        let folder = tempfile::tempdir().expect("a folder");
        let config_file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("it is written");
            format!("--config={}", path.display())
        };
        for (line, is_given) in [
            (vec![config_file("empty", "")], false),
            (vec![config_file("empty", ""), "--data=./tidegate-data".to_owned()], true),
            (vec![config_file("full", "data = \"./tidegate-data\"")], true),
        ] {
            for command in ["serve", "admin"] {
                let line = ["tidegate", command].into_iter().map(OsString::from).chain(line.iter().map(OsString::from));
                let control = match read(line.collect()) {
                    Ok(Cli { command: Command::Serve(serve), .. }) => serve.control,
                    Ok(Cli { command: Command::Admin { command: None, control, .. }, .. }) => control,
                    _ => panic!("it is read"),
                };
                assert_eq!(
                    (control.is_data_given, &*control.data),
                    (is_given, std::path::Path::new("./tidegate-data"))
                );
            }
        }
    }
}
