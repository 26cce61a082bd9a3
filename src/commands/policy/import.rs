//! `tidegate policy import`: files of other limiters, and of other formats, as a policy document.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;
use tidegate::{
    formats::Format,
    import::{Case, ImportError, ImportedPolicy, Note, Source, envoy, envoy_cases, limitador, limitador_cases},
};

use crate::policy_file::{hand_out, load_document, name_of, read_as, told};
use crate::{
    formats::{Output, PolicyFormatName},
    output::{Ended, Failure, printable, remark},
};

/// Makes a policy document of the files of other limiters, or of a document in another format.
///
/// Everything that is not carried over as it was is reported on standard error, by file, line and field, with what happens
/// instead and a mark where a decision changes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate policy import ratelimit/*.yaml --from envoy > policy.toml
  tidegate policy import limits.yaml --from limitador --out policy.yaml
  tidegate policy import policy.json --from tidegate --to toml
  tidegate policy import ratelimit/*.yaml --from envoy --out policy.toml --cases cases.yaml
  tidegate policy test policy.toml cases.yaml

What is carried over: docs/import-and-export.md. The document is always written; look at the report,
then publish it: tidegate policy publish.

Exit status: 0; 1 when a note says that decisions change, unless --accept is given; 2 when a file
could not be read, or is wrong.")]
pub(crate) struct ImportArguments {
    /// The files. Of envoyproxy/ratelimit and limitador there may be several.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Whose they are: configurations of envoyproxy/ratelimit, limits files of limitador, or a policy document.
    #[arg(long, value_enum)]
    from: Origin,
    /// Format of the document; that of the name of --out, or toml, unless given.
    #[arg(long, value_enum)]
    to: Option<PolicyFormatName>,
    /// File to write; standard output unless given.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// File to write cases to for `tidegate policy test`: descriptors with the decisions of the other limiter.
    #[arg(long, value_name = "FILE")]
    cases: Option<PathBuf>,
    /// How to report.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    report: Output,
    /// Changed decisions are known and meant: exit status 0.
    #[arg(long)]
    accept: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Origin {
    Envoy,
    Limitador,
    Tidegate,
}

pub(crate) fn run(arguments: &ImportArguments) -> Result<Ended, Failure> {
    let ImportArguments { files, from, to, out, cases, report, accept } = arguments;
    if cases.is_some() && matches!(from, Origin::Tidegate) {
        return Err(Failure("--cases: cases are made of files of other limiters; leave it out".to_owned()));
    }
    let (ImportedPolicy { policy, notes }, made_cases) = imported(files, *from, cases.is_some())?;
    let format = Format::from(PolicyFormatName::of(*to, out.as_deref()));
    let document = policy.write(format).map_err(|problems| Failure(problems.to_string()))?;
    hand_out(&document, out.as_deref())?;
    if let Some(file) = cases {
        hand_out(&cases_text(&made_cases)?, Some(file))?;
    }
    tell(&notes, *report)?;
    let is_other = notes.iter().any(|note| note.changes_decisions);
    Ok(if is_other && !accept { Ended::No } else { Ended::Well })
}

/// Formats cases as `tidegate policy test` reads them.
fn cases_text(cases: &[Case]) -> Result<String, Failure> {
    #[derive(Serialize)]
    struct File<'c> {
        cases: &'c [Case],
    }
    serde_saphyr::to_string(&File { cases }).map_err(|error| Failure(error.to_string()))
}

/// Reads the files. Returns the policy with its report, and cases.
fn imported(files: &[PathBuf], from: Origin, has_cases: bool) -> Result<(ImportedPolicy, Vec<Case>), Failure> {
    if matches!(from, Origin::Tidegate) {
        let [file] = files else { return Err(Failure("a policy document is one file".to_owned())) };
        return Ok((ImportedPolicy { policy: load_document(file)?, notes: Vec::new() }, Vec::new()));
    }
    let names: Vec<String> = files.iter().map(|file| name_of(file)).collect();
    let what = match from {
        Origin::Limitador => "limits file of limitador",
        Origin::Envoy | Origin::Tidegate => "configuration of envoyproxy/ratelimit",
    };
    let texts = files.iter().map(|file| read_as(what, file)).collect::<Result<Vec<_>, _>>()?;
    let sources: Vec<Source<'_>> = names.iter().zip(&texts).map(|(name, text)| Source { name, text }).collect();
    let imported = match from {
        Origin::Limitador => limitador(&sources),
        _ => envoy(&sources),
    };
    let made_cases = match from {
        _ if !has_cases => Ok(Vec::new()),
        Origin::Limitador => limitador_cases(&sources),
        _ => envoy_cases(&sources),
    };
    let imported = imported.and_then(|imported| Ok((imported, made_cases?)));
    let wrong =
        |ImportError { file, problems, .. }| Failure(format!("a file is wrong\n{}", told(&file, &problems).trim_end()));
    imported.map_err(wrong)
}

/// The report.
fn tell(notes: &[Note], form: Output) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Report<'n> {
        notes: &'n [Note],
    }
    match form {
        Output::Text => notes.iter().for_each(|note| remark(printable(&note.to_string()))),
        Output::Json => {
            let report = serde_json::to_string(&Report { notes }).map_err(|error| Failure(error.to_string()))?;
            remark(report);
        }
    }
    Ok(())
}
