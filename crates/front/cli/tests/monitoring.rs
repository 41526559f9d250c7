//! Alert rules and the dashboard: each rule fires, and every metric that they name is on a real page of metrics.

mod common;

use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use atoll_needs::needs;
use common::{Daemon, Scratch, eventually, free_port, good, text};

const RULES: &str = include_str!("../../../../packaging/prometheus/atoll.rules.yml");
const RULES_TEST: &str = include_str!("../../../../packaging/prometheus/atoll.test.yml");
const DASHBOARD: &str = include_str!("../../../../packaging/grafana/atoll.json");

/// Runs the tests of these rules; what promtool said, if they failed.
fn promtool(folder: &Path, rules: &str) -> Option<String> {
    std::fs::write(folder.join("atoll.rules.yml"), rules).unwrap();
    std::fs::write(folder.join("atoll.test.yml"), RULES_TEST).unwrap();
    let output = Command::new("promtool")
        .args(["test", "rules", "atoll.test.yml"])
        .current_dir(folder)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (!output.status.success()).then(|| String::from_utf8_lossy(&said).into_owned())
}

/// Each rule's name and expression.
fn alerts() -> Vec<(&'static str, &'static str)> {
    let after = |line: &'static str, word: &str| line.trim_start().strip_prefix(word);
    let names = RULES.lines().filter_map(|line| after(line, "- alert: "));
    names.zip(RULES.lines().filter_map(|line| after(line, "expr: "))).collect()
}

#[test]
fn each_rule_fires_when_it_should_and_only_then() {
    needs!(Programs(&["promtool"]));
    let scratch = Scratch::new();
    let folder = scratch.dir("rules");
    assert_eq!(promtool(&folder, RULES), None);
    let alerts = alerts();
    assert!(alerts.len() > 12, "{alerts:?}");
    // If a rule never fires, or fires always, the test of that rule fails.
    for other in ["vector(1) == 0", "vector(1)"] {
        let broken = alerts.iter().fold(RULES.to_owned(), |rules, (_, expression)| {
            rules.replace(&format!("        expr: {expression}\n"), &format!("        expr: {other}\n"))
        });
        let said = promtool(&folder, &broken).unwrap_or_default();
        for (name, _) in &alerts {
            assert!(said.contains(&format!("alertname: {name}, ")), "{name} may be {other}: {said}");
        }
    }
}

/// Names of Atoll's metrics in a text.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| ["node", "volume", "island", "mount"].iter().any(|of| is_of(word, of))).collect()
}

fn is_of(word: &str, of: &str) -> bool {
    word.strip_prefix("atoll_").is_some_and(|rest| rest.strip_prefix(of).is_some_and(|r| r.starts_with('_')))
}

/// A node of a cluster with certificates that shows its metrics.
fn serve(data: &Path, listen: &str) -> Daemon {
    let arguments = ["serve", "--data", text(data), "--listen", listen, "--metrics", "127.0.0.1:0"];
    Daemon::start(arguments, "volumes")
}

fn page(daemon: &Daemon) -> String {
    let address = daemon.told("metrics").strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    std::io::read_to_string(stream).unwrap()
}

#[test]
fn every_metric_that_a_rule_or_a_panel_names_is_on_a_page_of_metrics() {
    let scratch = Scratch::new();
    let local = || format!("127.0.0.1:{}", free_port());
    let (first, listen) = (scratch.path("node1"), local());
    good(["init", "--data", text(&first), "--listen", &listen, "--no-start", "--control", "embedded"]);
    let mut nodes = vec![serve(&first, &listen)];
    for number in 2..=3 {
        let line = good(["node", "invite", "--data", text(&first)]);
        let line = line.trim().strip_prefix("atoll join ").unwrap().to_owned();
        let (data, listen): (PathBuf, _) = (scratch.path(&format!("node{number}")), local());
        good(["join", &line, "--data", text(&data), "--listen", &listen, "--no-start"]);
        nodes.push(serve(&data, &listen));
    }
    good(["volume", "create", "home", "--replicas", "2", "--data", text(&first)]);
    // Which node leads the island follows from where the control store is.
    let leads = |page: &String| page.contains("atoll_island_leads{volume=\"home\",island=\"0\"} 1");
    let mut of_leader = None;
    eventually("a copy leads", || {
        of_leader = nodes.iter().map(page).find(leads);
        of_leader.is_some()
    });
    let page = of_leader.unwrap();
    let shown: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    for (of, text) in [("the rules", RULES), ("the dashboard", DASHBOARD)] {
        let named = metrics(text);
        assert!(named.len() > 10, "{named:?}");
        let missing: Vec<_> = named.difference(&shown).collect();
        assert!(missing.is_empty(), "{of}: {missing:?} are not in {page}");
    }
    // All of it is documented.
    let manual = include_str!("../../../../docs/OPERATIONS.md");
    for name in shown {
        assert!(manual.contains(&format!("| `{name}` |")), "OPERATIONS.md does not say what {name} means");
    }
    for (name, _) in alerts() {
        assert!(manual.contains(&format!("| `{name}` |")), "OPERATIONS.md does not say what {name} means");
    }
}

#[test]
fn the_dashboard_is_one_that_grafana_reads() {
    let board: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "two panels have one number: {panel}");
        assert!(panel["title"].is_string() && panel["datasource"]["uid"] == "${source}", "{panel}");
        let place = &panel["gridPos"];
        assert!(place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap() <= 24, "{panel}");
        assert!(
            panel["targets"].as_array().unwrap().iter().all(|target| target["expr"].is_string()),
            "{panel}"
        );
    }
}

#[test]
fn every_expression_of_the_dashboard_is_one_that_prometheus_reads() {
    needs!(Programs(&["promtool"]));
    let scratch = Scratch::new();
    let file = scratch.path("panels.yml");
    let board: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let targets = board["panels"].as_array().unwrap().iter().flat_map(|p| p["targets"].as_array().unwrap());
    let rules: Vec<_> = targets
        .enumerate()
        .map(|(at, target)| serde_json::json!({ "record": format!("panel_{at}"), "expr": target["expr"] }))
        .collect();
    assert!(rules.len() > 12);
    // JSON is YAML.
    let groups = serde_json::json!({ "groups": [{ "name": "panels", "rules": rules }] });
    std::fs::write(&file, groups.to_string()).unwrap();
    let output = Command::new("promtool").args(["check", "rules"]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
