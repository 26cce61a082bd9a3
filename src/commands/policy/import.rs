//! `tidegate policy import`: converts files of other limiters, and policies in other formats, into a policy document.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;
use tidegate::{
    formats::Format,
    import::{Case, ImportError, ImportedPolicy, Note, Source, envoy, envoy_cases, limitador, limitador_cases},
};

use crate::policy_file::{file_name, format_problems, load_document, read_text, write_output};
use crate::{
    formats::{OutputFormat, PolicyFormatName},
    output::{CommandError, CommandStatus, print_note, printable},
};

/// Converts the files of another limiter, or a policy in another format, into a policy document.
///
/// Standard error lists everything that is not converted as it was: file, line, field, what happens instead, and a mark where
/// decisions change.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate policy import ratelimit/*.yaml --from envoy > policy.toml
  tidegate policy import limits.yaml --from limitador --out policy.yaml
  tidegate policy import policy.json --from tidegate --to toml
  tidegate policy import ratelimit/*.yaml --from envoy --out policy.toml --cases cases.yaml
  tidegate policy test policy.toml cases.yaml

docs/import-and-export.md lists what is converted. The document is always written: read the report,
then publish the document with `tidegate policy publish`.

Exit status: 0 done; 1 a note says that decisions change, and --accept is not given; 2 a file could
not be read, or is invalid.")]
pub(crate) struct ImportArguments {
    /// The files. envoy and limitador may have several.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The kind of the files: configurations of envoyproxy/ratelimit (envoy), limits files of limitador, or a policy document
    /// (tidegate).
    #[arg(long, value_enum)]
    from: ImportFormat,
    /// The format of the document. The default is that of the name of --out, or toml.
    #[arg(long, value_enum)]
    to: Option<PolicyFormatName>,
    /// The file to write. The default is standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// A file to write test cases to, for `tidegate policy test`: descriptors with the decisions of the other limiter.
    #[arg(long, value_name = "FILE")]
    cases: Option<PathBuf>,
    /// The format of the report.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    report: OutputFormat,
    /// Accept changed decisions: exit status 0.
    #[arg(long)]
    accept: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ImportFormat {
    Envoy,
    Limitador,
    Tidegate,
}

pub(crate) fn run(arguments: &ImportArguments) -> Result<CommandStatus, CommandError> {
    let ImportArguments { files, from, to, out, cases, report, accept } = arguments;
    if cases.is_some() && matches!(from, ImportFormat::Tidegate) {
        return Err(CommandError(
            "--cases: cases are made only from the files of other limiters, not with --from tidegate; leave it out"
                .to_owned(),
        ));
    }
    let (ImportedPolicy { policy, notes }, made_cases) = import_files(files, *from, cases.is_some())?;
    let format = Format::from(PolicyFormatName::of(*to, out.as_deref()));
    let document = policy.write(format).map_err(|problems| CommandError(problems.to_string()))?;
    write_output(&document, out.as_deref())?;
    if let Some(file) = cases {
        write_output(&cases_text(&made_cases)?, Some(file))?;
    }
    print_report(&notes, *report)?;
    let is_other = notes.iter().any(|note| note.changes_decisions);
    Ok(if is_other && !accept { CommandStatus::Negative } else { CommandStatus::Success })
}

/// Formats cases as `tidegate policy test` reads them.
fn cases_text(cases: &[Case]) -> Result<String, CommandError> {
    #[derive(Serialize)]
    struct File<'c> {
        cases: &'c [Case],
    }
    serde_saphyr::to_string(&File { cases }).map_err(|error| CommandError(error.to_string()))
}

/// Reads the files. Returns the policy with its report, and cases.
fn import_files(
    files: &[PathBuf],
    from: ImportFormat,
    has_cases: bool,
) -> Result<(ImportedPolicy, Vec<Case>), CommandError> {
    if matches!(from, ImportFormat::Tidegate) {
        let [file] = files else {
            return Err(CommandError("--from tidegate converts one policy document; give one file".to_owned()));
        };
        return Ok((ImportedPolicy { policy: load_document(file)?, notes: Vec::new() }, Vec::new()));
    }
    let names: Vec<String> = files.iter().map(|file| file_name(file)).collect();
    let what = match from {
        ImportFormat::Limitador => "limits file of limitador",
        ImportFormat::Envoy | ImportFormat::Tidegate => "configuration of envoyproxy/ratelimit",
    };
    let texts = files.iter().map(|file| read_text(what, file)).collect::<Result<Vec<_>, _>>()?;
    let sources: Vec<Source<'_>> = names.iter().zip(&texts).map(|(name, text)| Source { name, text }).collect();
    let import_files = match from {
        ImportFormat::Limitador => limitador(&sources),
        _ => envoy(&sources),
    };
    let made_cases = match from {
        _ if !has_cases => Ok(Vec::new()),
        ImportFormat::Limitador => limitador_cases(&sources),
        _ => envoy_cases(&sources),
    };
    let import_files = import_files.and_then(|import_files| Ok((import_files, made_cases?)));
    let wrong = |ImportError { file, problems, .. }| {
        CommandError(format!("a file is invalid\n{}", format_problems(&file, &problems).trim_end()))
    };
    import_files.map_err(wrong)
}

/// Prints the report to standard error.
fn print_report(notes: &[Note], format: OutputFormat) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct ImportReport<'n> {
        notes: &'n [Note],
    }
    match format {
        OutputFormat::Text => notes.iter().for_each(|note| print_note(printable(&note.to_string()))),
        OutputFormat::Json => {
            let report =
                serde_json::to_string(&ImportReport { notes }).map_err(|error| CommandError(error.to_string()))?;
            print_note(report);
        }
    }
    Ok(())
}
