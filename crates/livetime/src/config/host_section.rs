//! The `[[host]]` and `[control]` tables: which roles run on which host, and how those are started.
//!
//! What may be on different hosts follows from the plan of the chain: roles that share a ring or a
//! pool stay together, streams go between hosts. Who starts the hosts is in `verb/host.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use livetime_node::chain_plan::{ChainPlan, FRONT_END, role_of};
use livetime_node::{BuilderTransport, ChainConfig};
use livetime_wire::{DurationNs, Problem, UnitKind};

use super::document::{Findings, Section};
use super::problem_code::{
    CONTROL_ADDRESS, HOST_TWICE, IDLE_KEY, LAUNCHER_COMMAND, NO_ADDRESS, OUT_OF_RANGE,
    ROLE_ON_NO_HOST, ROLE_TWICE, ROLES_APART, UNKNOWN_ROLE,
};

/// How hosts are started, by name.
const LAUNCHER: [(&str, bool); 2] = [("local", false), ("exec", true)];
/// What a template must hold.
const COMMAND: &str = "{command}";
/// What is replaced in it.
const PLACEHOLDERS: [&str; 3] = [COMMAND, "{address}", "{host}"];
/// The keys that say which roles there are.
pub(super) const ROLE_NUMBERS: [&str; 5] = [
    "trigger.nodes",
    "builder.builder_units",
    "filter.units",
    "filter.units_max",
    "store.writers",
];

/// How a host is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostLauncher {
    /// As a process of this machine.
    Local,
    /// By this command line, with `{host}`, `{address}` and `{command}` replaced.
    Exec(String),
}

/// A host of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostConfig {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    pub(crate) roles: Vec<String>,
    pub(crate) launcher: HostLauncher,
}

/// The hosts of a run and how they are steered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostTable {
    /// In the order of the file.
    pub(crate) hosts: Vec<HostConfig>,
    /// Where the coordinator listens; a free port of the loopback without it.
    pub(crate) control: Option<SocketAddr>,
    /// Silence after which a host is suspect.
    pub(crate) suspect: DurationNs,
    /// Silence after which a host is dead.
    pub(crate) dead: DurationNs,
}

/// What is known of the roles of a chain although keys may have problems.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownRoles {
    /// Which there are.
    pub(crate) ids: bool,
    /// What is between them.
    pub(crate) transports: bool,
}

impl Default for HostTable {
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            control: None,
            suspect: DurationNs(DurationNs::SECOND.0 / 2),
            dead: DurationNs(5 * DurationNs::SECOND.0),
        }
    }
}

/// Characters of a host's name.
const NAME_MAX: usize = 64;
/// A shorter silence is the machine's, which keeps a process from its core, and not the host's.
const SILENCE_MIN: DurationNs = DurationNs(50 * DurationNs::MILLISECOND.0);

/// Reads the tables.
pub(crate) fn read_hosts(root: &mut Section<'_, '_>, findings: &Findings) -> HostTable {
    let mut table = HostTable::default();
    let has_hosts = root.has("host");
    if let Some(mut section) = root.section("control") {
        const ADDRESS: &str = "an address with port, such as \"10.0.0.1:7450\"";
        table.control = section.parsed("address", ADDRESS, str::parse::<SocketAddr>);
        section.quantity("suspect", &mut table.suspect);
        section.quantity("dead", &mut table.dead);
        let are_read = !section.is_unread("suspect") && !section.is_unread("dead");
        if table.suspect < SILENCE_MIN {
            section.report(Problem::new(
                OUT_OF_RANGE,
                section.key_path("suspect"),
                table.suspect,
                format!("at least {SILENCE_MIN}"),
                "a host that is kept from its core for a moment would be taken for silent",
            ));
        }
        if are_read && table.dead < table.suspect {
            section.report(Problem::new(
                OUT_OF_RANGE,
                section.key_path("dead"),
                table.dead,
                format!("at least `suspect`, {}", table.suspect),
                "a host is dead when it was silent for longer than one that is reported",
            ));
        }
        if !has_hosts {
            let keys = ["address", "suspect", "dead"];
            let help = "add a `[[host]]`, or remove `[control]`: a run on one host needs none";
            section.refuse_idle(&keys, "`[control]` with `[[host]]`", help);
        }
        section.finish();
    }
    for mut section in root.sections("host") {
        section.require("name", "a name of your choice, such as \"readout\"");
        section.require("address", "the IP address at which the host is reached");
        section.require("roles", "a list of role ids, such as [\"bu0\", \"fu0\"]");
        let name = section.text("name");
        let address = section.parsed("address", "an IP address", str::parse::<IpAddr>);
        let roles = section.texts("roles").unwrap_or_default();
        let launcher = read_launcher(&mut section, findings);
        section.finish();
        table.hosts.push(HostConfig {
            name: name.unwrap_or_default(),
            address: address.unwrap_or(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)),
            roles,
            launcher,
        });
    }
    table
}

fn read_launcher(section: &mut Section<'_, '_>, findings: &Findings) -> HostLauncher {
    let is_exec = section.choice("launcher", &LAUNCHER) == Some(true);
    let command = section.text("command");
    let key = section.key_path("command");
    match (is_exec, command) {
        (false, None) => HostLauncher::Local,
        (false, Some(command)) => {
            let help = "leave the key out, or set `launcher = \"exec\"`";
            let allowed = "only with `launcher = \"exec\"`";
            findings.report(Problem::new(IDLE_KEY, key, command, allowed, help));
            HostLauncher::Local
        }
        (true, Some(command)) if command.contains(COMMAND) => {
            if let Some(unknown) = unknown_placeholder(&command) {
                let found = format!("\"{command}\", with {unknown}");
                let allowed =
                    "a command line with {command}, and {address} and {host} where they help";
                let help = "write one of these; `${name}` and `{ name }` are left to the shell";
                findings.report(Problem::new(LAUNCHER_COMMAND, key, found, allowed, help));
            }
            HostLauncher::Exec(command)
        }
        (true, command) => {
            let found = command.map_or("not there".to_owned(), |command| format!("\"{command}\""));
            let allowed = "a command line with {command} in it";
            let help = "write, for instance, `command = \"ssh {address} {command}\"`";
            findings.report(Problem::new(LAUNCHER_COMMAND, key, found, allowed, help));
            HostLauncher::Local
        }
    }
}

/// The first `{word}` of a template that stands for nothing: the shell would take it as it is. What it
/// takes itself has a `$` in front, blanks, commas or dots.
fn unknown_placeholder(template: &str) -> Option<&str> {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let opened = template.match_indices('{');
    let mut words = opened.filter_map(|(start, _)| {
        let end = start + template[start..].find('}')? + 1;
        let inner = &template[start + 1..end - 1];
        let is_word = !inner.is_empty() && inner.chars().all(is_letter);
        (is_word && !template[..start].ends_with('$')).then(|| &template[start..end])
    });
    words.find(|word| !PLACEHOLDERS.contains(word))
}

impl HostTable {
    /// Role ids with the host of each.
    pub(crate) fn placement(&self) -> BTreeMap<&str, &str> {
        let mut placement = BTreeMap::new();
        for host in &self.hosts {
            placement.extend(
                host.roles
                    .iter()
                    .map(|role| (role.as_str(), host.name.as_str())),
            );
        }
        placement
    }

    /// The indices of the hosts that have a role: one, if nothing is wrong. Names may be.
    fn hosts_of(&self, role: &str) -> impl Iterator<Item = usize> + Clone {
        let hosts = self.hosts.iter().enumerate();
        let has_it = |host: &HostConfig| host.roles.iter().any(|other| other == role);
        let indices = hosts.filter(|(_, host)| has_it(host));
        let indices: Vec<usize> = indices.map(|(index, _)| index).collect();
        indices.into_iter()
    }

    /// Whether two roles are on different hosts.
    pub(crate) fn are_apart(&self, one: &str, other: &str) -> bool {
        let hosts = self.hosts_of(one).last().zip(self.hosts_of(other).last());
        hosts.is_some_and(|(one, other)| one != other)
    }

    /// How a host is called in messages.
    fn name_of(&self, index: usize) -> String {
        match self.hosts[index].name.as_str() {
            "" => format!("host[{index}]"),
            name => name.to_owned(),
        }
    }

    /// Indices of the readout units on other hosts than the front-ends.
    pub(crate) fn readout_apart(&self) -> Vec<u16> {
        let roles = self.hosts.iter().flat_map(|host| &host.roles);
        let indices = roles.filter_map(|role| {
            let index = role
                .strip_prefix(UnitKind::Readout.prefix())?
                .parse()
                .ok()?;
            self.are_apart(FRONT_END, role).then_some(index)
        });
        indices.collect()
    }

    /// Checks the placement of a chain's roles, as far as these are `known`; without hosts there is
    /// nothing to check.
    pub(crate) fn check(&self, chain: &ChainConfig, known: KnownRoles, findings: &Findings) {
        if self.hosts.is_empty() {
            return;
        }
        self.check_names(findings);
        self.check_addresses(findings);
        self.check_control(findings);
        // With a wrong number of units every role named here would look wrong, too.
        if known.ids {
            self.check_roles(chain, findings);
            if known.transports {
                self.check_sharing(chain, findings);
            }
        }
    }

    fn check_names(&self, findings: &Findings) {
        for (index, host) in self.hosts.iter().enumerate() {
            let key = format!("host[{index}].name");
            if findings.has_problem_at(&key) {
                // One that could not be read is none to be compared.
                continue;
            }
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            let is_taken = self.hosts[..index].iter().any(|h| h.name == host.name);
            let is_given = !host.name.is_empty();
            // It is an argument of a command, and in the name of a folder.
            let is_name = host.name.chars().all(is_plain)
                && !host.name.starts_with('-')
                && host.name.len() <= NAME_MAX;
            if is_taken || !is_given || !is_name {
                let found = format!("\"{}\"", host.name);
                let allowed = "a name of up to 64 letters, digits, `-`, `_` and `.`, with no `-` in \
                               front, that no other host has";
                let help = "hosts are told apart by their names; give each its own";
                findings.report(Problem::new(HOST_TWICE, key, found, allowed, help));
            }
        }
    }

    /// Other hosts reach a host at its address.
    fn check_addresses(&self, findings: &Findings) {
        for (index, host) in self.hosts.iter().enumerate() {
            if host.address.is_unspecified() {
                findings.report(Problem::new(
                    NO_ADDRESS,
                    format!("host[{index}].address"),
                    format!("{}, which names no machine", host.address),
                    "the address of an interface of that host, which the others reach",
                    "write the host's own address; `ip address` on it lists those that it has",
                ));
            }
        }
    }

    /// Hosts that are not started here must reach the coordinator.
    fn check_control(&self, findings: &Findings) {
        if let Some(at) = self.control.filter(|at| at.port() == 0) {
            findings.report(Problem::new(
                CONTROL_ADDRESS,
                "control.address",
                format!("{at}, without a port that hosts could be told"),
                "an address with a port from 1 to 65535",
                "write a port that is free, such as 7450",
            ));
            return;
        }
        let is_remote =
            |host: &&HostConfig| !host.address.is_loopback() && !host.address.is_unspecified();
        let remote = self.hosts.iter().find(is_remote);
        // Where the coordinator listens is what the hosts are told: to another machine all
        // interfaces of this one are as much itself as the loopback.
        let is_reached = |at: SocketAddr| !at.ip().is_loopback() && !at.ip().is_unspecified();
        if let Some(host) = remote.filter(|_| !self.control.is_some_and(is_reached)) {
            let found = match self.control {
                Some(at) if at.ip().is_unspecified() => {
                    format!("{at}, which on {} is {} itself", host.name, host.name)
                }
                Some(at) => format!("{at}, which {} cannot reach", host.name),
                None => "no `[control] address`".to_owned(),
            };
            let allowed = "an address of this machine that the hosts reach";
            let help = match self.control {
                Some(_) => {
                    "write the address of an interface that the hosts reach: hosts are told it"
                }
                None => "add `[control]` with `address = \"10.0.0.1:7450\"`, for instance",
            };
            let path = match self.control {
                Some(_) => "control.address",
                None => "host",
            };
            findings.report(Problem::new(CONTROL_ADDRESS, path, found, allowed, help));
        }
    }

    /// Every role of the chain is on one host, and no other is.
    fn check_roles(&self, chain: &ChainConfig, findings: &Findings) {
        let all = chain.role_ids();
        let mut keys = (0..self.hosts.len()).map(|index| format!("host[{index}].roles"));
        // Those that could not be read may have what the others lack.
        let are_read = !keys.any(|key| findings.has_problem_at(&key));
        let mut placed: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, host) in self.hosts.iter().enumerate() {
            let key = format!("host[{index}].roles");
            for role in &host.roles {
                if !all.contains(role) {
                    let found = format!("\"{role}\"");
                    let help = "`livetime check` without hosts prints the roles of the chain";
                    let allowed = all.join(", ");
                    findings.report(Problem::new(UNKNOWN_ROLE, &key, found, allowed, help));
                } else if let Some(first) = placed.insert(role, index) {
                    let found = format!("\"{role}\", which is on {}", self.hosts[first].name);
                    let help = "leave it on one of them";
                    let allowed = "each role on one host";
                    let mut problem = Problem::new(ROLE_TWICE, &key, found, allowed, help);
                    problem.related = Some((format!("host[{first}].roles"), "first here".into()));
                    findings.report(problem);
                }
            }
        }
        let missing: Vec<&str> = (all.iter().map(String::as_str))
            .filter(|role| !placed.contains_key(role))
            .collect();
        if are_read && !missing.is_empty() {
            let found = format!("{} on none", missing.join(", "));
            let help = "add them to the `roles` of a host";
            let allowed = "every role of the chain on one host";
            findings.report(Problem::new(ROLE_ON_NO_HOST, "host", found, allowed, help));
        }
    }

    /// Roles that share memory are on one host, as far as each is on one at all.
    fn check_sharing(&self, chain: &ChainConfig, findings: &Findings) {
        for group in sharing_roles(&ChainPlan::new(chain)) {
            let mut by_host: BTreeMap<(String, usize), Vec<&str>> = BTreeMap::new();
            for role in &group {
                let mut hosts = self.hosts_of(role);
                if let (Some(host), None) = (hosts.next(), hosts.next()) {
                    let host = (self.name_of(host), host);
                    by_host.entry(host).or_default().push(role);
                }
            }
            if by_host.len() < 2 {
                continue;
            }
            // The host with the fewest of them is the one to look at.
            let fewest = by_host.iter().min_by_key(|(_, roles)| roles.len());
            let index = fewest.map_or(0, |((_, index), _)| *index);
            let parts = by_host.iter();
            let parts = parts.map(|((host, _), roles)| format!("{} on {host}", roles.join(" ")));
            let found = parts.collect::<Vec<_>>().join(", ");
            let allowed = format!("on one host: {}", group.join(" "));
            let is_filter = |role: &&str| role.starts_with(UnitKind::Filter.prefix());
            let is_readout = |role: &&str| role.starts_with(UnitKind::Readout.prefix());
            let has_front_end = |roles: &Vec<&str>| roles.contains(&FRONT_END);
            let mut without = by_host.values().filter(|roles| !has_front_end(roles));
            let is_readout_apart = group.iter().any(|role| role == FRONT_END)
                && without.any(|roles| roles.iter().any(is_readout));
            let help = match chain.transport {
                _ if is_readout_apart => {
                    "they share pages or rings in memory; `kind = \"tcp\"` or \"udp\" of its links lets \
                     a readout unit be on another host than its front-ends"
                }
                _ if by_host.values().any(|roles| roles.iter().all(is_filter)) => {
                    "they share pages or rings in memory; `transport = \"tcp\"` under `[filter]` lets \
                     filter units be on hosts of their own"
                }
                BuilderTransport::Shm => {
                    "they share pages or rings in memory; `transport = \"tcp\"` under `[builder]` \
                     lets readout and building be on different hosts"
                }
                BuilderTransport::Tcp { .. } | BuilderTransport::Udp { .. } => {
                    "they share pages or rings in memory; put them on one host; `[filter] subfarms` \
                     and as many `[store] writers` divide building over several"
                }
            };
            let key = format!("host[{index}].roles");
            findings.report(Problem::new(ROLES_APART, key, found, allowed, help));
        }
    }
}

/// The roles that share memory, directly or by others, in the order of the plan.
fn sharing_roles(plan: &ChainPlan) -> Vec<Vec<String>> {
    let rings = plan.rings.iter();
    let ends = rings.map(|ring| vec![role_of(ring.key.from), role_of(ring.key.to)]);
    let pools = plan.pools.iter().map(|pool| pool.roles.clone());
    let mut groups: Vec<BTreeSet<String>> = Vec::new();
    for sharing in ends.chain(pools) {
        let mut joined: BTreeSet<String> = sharing.into_iter().collect();
        groups.retain(|group| {
            let is_apart = group.is_disjoint(&joined);
            if !is_apart {
                joined.extend(group.iter().cloned());
            }
            is_apart
        });
        groups.push(joined);
    }
    let in_order = |group: BTreeSet<String>| {
        let roles = plan.roles.iter();
        roles
            .filter(|role| group.contains(*role))
            .cloned()
            .collect()
    };
    groups.into_iter().map(in_order).collect()
}
