//! `atoll union status`: how unions and their members are.

use std::path::{Path, PathBuf};

use anyhow::Result;
use atoll_proto::union::{BytesGo, MemberCondition, MemberStatus, UnionStatus};
use atoll_volume::group::span;
use atoll_volume::union::ask::{AllUnions, ShownUnion};
use serde_json::{Value, json};

use super::show::passes;
use crate::say;

/// Arguments of `atoll union status`.
#[derive(Debug, clap::Args)]
pub(super) struct Status {
    /// A union's name, or its mount point. Without it: all unions of this machine
    #[arg(value_name = "NAME|MOUNT")]
    which: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(super) fn run(self, state: Option<&Path>) -> Result<()> {
        let AllUnions { told, silent } = match &self.which {
            Some(which) => {
                let union = ShownUnion::named(state, which)?;
                let status = union.status()?;
                AllUnions { told: vec![(union, status)], silent: Vec::new() }
            }
            None => ShownUnion::all()?,
        };
        silent.iter().for_each(|why| eprintln!("atoll: {why}"));
        if self.json {
            let all = told.iter().map(|(union, status)| to_json(union, status));
            say::json(&Value::Array(all.collect()));
        } else if told.is_empty() {
            say::line("No union is shown here. To show one: atoll union DIR... MOUNT");
        } else {
            told.iter().for_each(|(union, status)| show(union, status));
        }
        Ok(())
    }
}

fn show(union: &ShownUnion, status: &UnionStatus) {
    let name = status.name.as_deref().unwrap_or("(not kept)");
    say::line(format_args!(
        "union {name}  mounted on {}  up {}",
        union.mount.path.display(),
        span(status.up_ms)
    ));
    let settings: Vec<String> = status.settings.iter().map(|(what, how)| format!("{what}={how}")).collect();
    say::line(format_args!("  {}", settings.join("  ")));
    say::line(format_args!("  bytes of open files {}", passes(status.bytes_go)));
    if status.settings.iter().any(|(what, how)| what == "away" && how == "hide") {
        say::line("  MISSING DISKS ARE HIDDEN: programs take their files for deleted (away=hide)");
    }
    status.members.iter().for_each(show_member);
}

fn show_member(member: &MemberStatus) {
    let state = match member.state {
        MemberCondition::Serving => "serving".to_owned(),
        MemberCondition::Stuck => format!("STUCK for {}", span(member.state_ms)),
        MemberCondition::Away => format!("AWAY for {}", span(member.state_ms)),
    };
    let space = match member.space {
        Some((bytes, available)) => format!("free {} of {}", say::bytes(available), say::bytes(bytes)),
        None => "free space is not known yet".to_owned(),
    };
    let noticed = match (member.watched, member.checked) {
        (0, 0) => "no directory was read yet".to_owned(),
        (watched, 0) => format!("changes are told in {watched} directories"),
        (watched, checked) => {
            format!("changes are told in {watched} directories, and looked for in {checked}")
        }
    };
    let read_only = if member.read_only { "  read-only" } else { "" };
    say::line(format_args!("  member {}  {state}{read_only}  {space}  {noticed}", member.path));
}

fn to_json(union: &ShownUnion, status: &UnionStatus) -> Value {
    let settings: serde_json::Map<String, Value> =
        status.settings.iter().map(|(what, how)| (what.clone(), how.clone().into())).collect();
    let members = status.members.iter().map(|member| {
        let state = match member.state {
            MemberCondition::Serving => "serving",
            MemberCondition::Stuck => "stuck",
            MemberCondition::Away => "away",
        };
        json!({
            "path": member.path, "tag": member.tag, "file_system": member.file_system, "read_only": member.read_only,
            "state": state, "state_ms": member.state_ms,
            "bytes": member.space.map(|(bytes, _)| bytes),
            "bytes_available": member.space.map(|(_, available)| available),
            "watched": member.watched, "checked": member.checked,
        })
    });
    json!({
        "name": status.name, "point": union.mount.path.display().to_string(), "up_ms": status.up_ms,
        "settings": settings, "passthrough": status.bytes_go == BytesGo::Directly, "members": members.collect::<Vec<_>>(),
    })
}
