//! Starts nfs-ganesha over a plain folder (FSAL VFS), on the loopback interface. Never used in place of our server.
//!
//! It registers itself with rpcbind and does not start without. So one is started too, if none is there.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use atoll_needs::free_port;
use atoll_torture::process::{LIFE_MAX, PATIENCE, Process};

use crate::files::Export;

/// The programs that it needs.
pub const PROGRAMS: &[&str] = &["ganesha.nfsd", "rpcbind"];

/// Where Debian has its modules.
const MODULES: &str = "/usr/lib/x86_64-linux-gnu/ganesha";

const RPCBIND: &str = "127.0.0.1:111";

/// A running nfs-ganesha. Ends when this is dropped.
#[derive(Debug)]
pub struct Ganesha {
    server: Process,
    _rpcbind: Option<Process>,
    export: Export,
}

impl Ganesha {
    /// Exports the folder `top`, without squashing; its files lie in `beside`.
    ///
    /// # Errors
    ///
    /// If one of the programs does not start.
    pub fn start(top: &Path, beside: &Path) -> Result<Self> {
        let rpcbind = if listens(RPCBIND) { None } else { Some(start_rpcbind(beside)?) };
        let [nfs, mount] = [(); 2].map(|()| SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())));
        let config = beside.join("ganesha.conf");
        let (top, modules) = (top.display(), MODULES);
        let text = format!(
            "NFS_CORE_PARAM {{ NFS_Port = {}; MNT_Port = {}; Bind_addr = 127.0.0.1; Protocols = 3; Enable_UDP = false; \
             Enable_NLM = false; Enable_RQUOTA = false; Plugins_Dir = \"{modules}\"; }}\n\
             NFSV4 {{ Graceless = true; }}\n\
             EXPORT {{ Export_Id = 1; Path = {top}; Pseudo = /export; Access_Type = RW; Squash = No_Root_Squash; \
             Protocols = 3; Transports = TCP; SecType = sys; MaxRead = 1048576; MaxWrite = 1048576; \
             FSAL {{ Name = VFS; }} }}\n",
            nfs.port(),
            mount.port()
        );
        std::fs::write(&config, text)?;
        let mut command = Command::new("ganesha.nfsd");
        command.arg("-F").arg("-f").arg(&config).arg("-L").arg("/dev/stdout");
        command.arg("-p").arg(beside.join("ganesha.pid"));
        let mut server = Process::spawn(&mut command, beside.join("ganesha.log"), LIFE_MAX)?;
        let ready = |server: &Process| server.said().contains("NFS SERVER INITIALIZED");
        server.wait_until("serving", PATIENCE, ready).context("ganesha.nfsd")?;
        let export = Export { nfs, mount, path: top.to_string() };
        Ok(Self { server, _rpcbind: rpcbind, export })
    }

    /// What it exports.
    pub const fn export(&self) -> &Export {
        &self.export
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.server.id()
    }
}

fn listens(address: &str) -> bool {
    TcpStream::connect(address).is_ok()
}

fn start_rpcbind(beside: &Path) -> Result<Process> {
    std::fs::create_dir_all("/run/rpcbind")?;
    let mut process =
        Process::spawn(Command::new("rpcbind").arg("-f"), beside.join("rpcbind.log"), LIFE_MAX)?;
    process.wait_until("listening", PATIENCE, |_| listens(RPCBIND)).context("rpcbind")?;
    Ok(process)
}
