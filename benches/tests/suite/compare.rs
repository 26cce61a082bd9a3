//! Tests of the program `compare`: a quick run ends, and writes the documented report and JSON.

use std::{fs, process::Command};

use serde_json::Value;

/// Runs `compare --quick` for the rows with this text in their names, and returns its report and its JSON.
fn quick(only: &str) -> (String, Vec<Value>) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("figures.json");
    let output = Command::new(env!("CARGO_BIN_EXE_compare"))
        .args(["--quick", "--only", only, "--json"])
        .arg(&file)
        .output()
        .expect("the program");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let figures = fs::read_to_string(file).expect("the figures");
    (String::from_utf8(output.stdout).expect("text"), serde_json::from_str(&figures).expect("a list"))
}

#[test]
fn every_row_and_peer_is_an_object_with_the_documented_fields() {
    let (table, records) = quick("hot");
    let works: Vec<_> = records.iter().map(|record| record["work"].as_str().expect("text")).collect();
    for work in ["one hot key", "denial flood, one hot key", "one hot key, allowed"] {
        assert!(works.contains(&work), "{works:?}");
        assert!(table.contains(work), "{table}");
    }
    assert!(works.iter().all(|work| work.contains("hot")), "only the rows that `--only` names");
    for record in &records {
        let fields: Vec<_> = record.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(fields.len(), 14, "{fields:?}");
        let number = |field: &str| record[field].as_f64().unwrap_or_else(|| panic!("{field} of {record}"));
        assert!((number("peer_ns") / number("ours_ns") - number("ratio")).abs() < 1e-6, "{record}");
        assert!(number("ours_ns") > 0.0 && number("threads") >= 1.0 && number("keys") >= 1.0, "{record}");
        assert!(record["peer"].is_string(), "{record}");
        assert_eq!(record["target"].is_string(), record["met"].is_boolean(), "{record}");
        assert_eq!(record["target"].is_null(), record["met"].is_null(), "{record}");
        assert_eq!(record["best_target"].is_null(), record["best_met"].is_null(), "{record}");
        let (threads, rate) = (number("threads"), number("ours_m_per_second"));
        assert!((threads * 1e3 / number("ours_ns") / rate - 1.0).abs() < 1e-6, "{record}");
    }
    for work in ["one hot key", "denial flood, one hot key", "one hot key, allowed"] {
        let of_row = || records.iter().filter(|record| record["work"] == work && record["is_peer"] == true);
        let [best] = of_row().filter(|record| record["is_best"] == true).collect::<Vec<_>>()[..] else {
            panic!("one best peer of {work}: {records:?}")
        };
        assert!(of_row().all(|peer| peer["peer_ns"].as_f64() >= best["peer_ns"].as_f64()), "{work}: {best}");
        assert!(best["best_target"].is_string(), "{best}");
        assert!(table.contains(&format!("best peer: {}", best["peer"].as_str().expect("text"))), "{table}");
    }
    let goal = |peer: &str, work: &str| {
        let is_it = |record: &&Value| record["peer"] == peer && record["work"] == work;
        records.iter().find(is_it).map(|record| record["target"].clone())
    };
    assert_eq!(goal("governor, String", "one hot key"), Some(">= 2".into()));
    assert_eq!(goal("floor", "one hot key"), Some(">= 0.8".into()));
    assert_eq!(goal("two private keys", "one hot key, allowed"), Some(">= 0.8".into()));
}

#[test]
fn a_quick_run_names_the_rows_that_it_leaves_out() {
    let (table, records) = quick("16 M");
    assert!(records.is_empty() && table.contains("left out by --quick: batch of 64, 16 M keys"), "{table}");
}
