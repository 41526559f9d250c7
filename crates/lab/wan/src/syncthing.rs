//! Two instances of Syncthing at the hosts of a link, which keep one folder each equal: to compare with. They know each other's
//! addresses, and find nobody else.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use atoll_torture::place::run;
use atoll_torture::process::{PATIENCE, Process};
use serde_json::Value;

use crate::pair::{Pair, wait};
use crate::wire::Wire;

/// The program.
pub const PROGRAM: &str = "syncthing";
/// It is killed after this.
const LIFE_MAX: Duration = Duration::from_secs(12 * 3600);
/// Where an instance answers questions, and with which key.
const ASKED_AT: &str = "127.0.0.1:8384";
const KEY: &str = "wan";
/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Both instances. Killed when this is dropped.
#[derive(Debug)]
pub struct Syncthing {
    folders: [PathBuf; 2],
    ids: [String; 2],
    /// Held so that they run.
    _instances: Vec<Process>,
    wire: Wire,
}

impl Syncthing {
    /// Starts them with empty folders, all in the folder `top`. They look at a change so many seconds after it: 1 at least.
    pub fn start(wire: Wire, top: &Path, delay_s: u64) -> Result<Self> {
        let home = |host: usize| top.join(format!("home{host}"));
        let folders = [0, 1].map(|host| top.join(format!("folder{host}")));
        let mut ids = [String::new(), String::new()];
        for (host, folder) in folders.iter().enumerate() {
            fs::create_dir_all(folder)?;
            let mut generate = Command::new(PROGRAM);
            run(generate.args(["generate", "--no-default-folder", "--home"]).arg(home(host)))?;
            let mut id = Command::new(PROGRAM);
            ids[host] = run(id.args(["--device-id", "--home"]).arg(home(host)))?.trim().to_owned();
        }
        let mut instances = Vec::new();
        for (host, folder) in folders.iter().enumerate() {
            fs::write(home(host).join("config.xml"), config(host, &ids, folder, delay_s))?;
            let mut command = wire.command(host, Path::new(PROGRAM));
            command.args(["serve", "--no-browser", "--no-restart", "--no-default-folder", "--home"]);
            command.arg(home(host)).env("STNOUPGRADE", "1");
            instances.push(Process::spawn(&mut command, top.join(format!("syncthing{host}.log")), LIFE_MAX)?);
        }
        let both = Self { folders, ids, _instances: instances, wire };
        wait("Syncthing is connected", PATIENCE, Duration::from_millis(200), || both.is_even())?;
        Ok(both)
    }

    /// What an instance answers.
    fn ask(&self, host: usize, path: &str) -> Result<Value> {
        let text = self.wire.at(host, || -> Result<String> {
            let mut stream = TcpStream::connect(ASKED_AT)?;
            stream.set_read_timeout(Some(ANSWER_MAX))?;
            write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\nX-API-Key: {KEY}\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        })??;
        ensure!(text.starts_with("HTTP/1.0 200"), "{path}: {}", text.lines().next().unwrap_or_default());
        let (_, body) = text.split_once("\r\n\r\n").context("an answer of HTTP")?;
        serde_json::from_str(body).with_context(|| path.to_owned())
    }
}

impl Pair for Syncthing {
    fn name(&self) -> &'static str {
        "Syncthing"
    }

    fn wire(&self) -> &Wire {
        &self.wire
    }

    fn folder(&self, host: usize) -> &Path {
        &self.folders[host]
    }

    fn is_even(&self) -> Result<bool> {
        for host in 0..2 {
            let other = &self.ids[1 - host];
            let connections = self.ask(host, "/rest/system/connections")?;
            let folder = self.ask(host, "/rest/db/status?folder=wan")?;
            let there = self.ask(host, &format!("/rest/db/completion?folder=wan&device={other}"))?;
            let is_zero = |of: &Value, name: &str| of[name].as_u64() == Some(0);
            if connections["connections"][other]["connected"] != true
                || folder["state"] != "idle"
                || !["needBytes", "needFiles", "needDeletes", "needDirectories"]
                    .iter()
                    .all(|name| is_zero(&folder, name))
                || !["needBytes", "needItems", "needDeletes"].iter().all(|name| is_zero(&there, name))
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The configuration of an instance: one folder, one other instance, nothing that asks the world. `maxConflicts` is what `syncthing
/// generate` writes: where it is missing there are no copies of conflicts.
fn config(host: usize, ids: &[String; 2], folder: &Path, delay_s: u64) -> String {
    let devices: String = (0..2)
        .map(|at| {
            let address = Wire::address(at);
            format!(
                "<device id=\"{}\" name=\"h{at}\" compression=\"metadata\"><address>tcp://{address}:22000</address>\
                 <autoAcceptFolders>false</autoAcceptFolders></device>\n",
                ids[at]
            )
        })
        .collect();
    let shared: String = ids.iter().map(|id| format!("<device id=\"{id}\"></device>")).collect();
    let (folder, address) = (folder.display(), Wire::address(host));
    format!(
        "<configuration version=\"35\">\n\
         <folder id=\"wan\" label=\"wan\" path=\"{folder}\" type=\"sendreceive\" rescanIntervalS=\"3600\" \
         fsWatcherEnabled=\"true\" fsWatcherDelayS=\"{delay_s}\" ignorePerms=\"false\" autoNormalize=\"true\">\
         <filesystemType>basic</filesystemType>{shared}<maxConflicts>10</maxConflicts>\
         <markerName>.stfolder</markerName></folder>\n\
         {devices}\
         <gui enabled=\"true\" tls=\"false\"><address>{ASKED_AT}</address><apikey>{KEY}</apikey></gui>\n\
         <options><listenAddress>tcp://{address}:22000</listenAddress>\
         <globalAnnounceEnabled>false</globalAnnounceEnabled><localAnnounceEnabled>false</localAnnounceEnabled>\
         <relaysEnabled>false</relaysEnabled><natEnabled>false</natEnabled>\
         <reconnectionIntervalS>5</reconnectionIntervalS><startBrowser>false</startBrowser>\
         <urAccepted>-1</urAccepted><autoUpgradeIntervalH>0</autoUpgradeIntervalH>\
         <crashReportingEnabled>false</crashReportingEnabled></options>\n\
         </configuration>\n"
    )
}
