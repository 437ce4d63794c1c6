//! The hosts of a run: expected, joined, suspect, dead.
//!
//! ```text
//! expected ──hello as it should be──► joined ──token gone, or not heard──► suspect
//!     │                                 ▲                                  │   │
//!     └──hello of another──► refused    └──────────heard again─────────────┘   └─► dead
//! ```
//! A host is heard by any report of it, and seen by its liveliness token. Silence is suffered longer
//! than a token that is gone: a cut link holds words back and brings them later, but with its token
//! a host has lost its connection, and what was said meanwhile. One that is dead stays so: its roles
//! were taken for lost. So does one of whose words some are missing, and one that comes in the place of
//! another, with its name but another life, is not listened to. The core has no clock and no socket; [`Membership::poll_timeout`] says when time matters next.

use std::collections::{BTreeMap, VecDeque};

use livetime_wire::{DurationNs, RunNs};

use crate::host_hello::HostHello;

/// After which silence a host is suspect, and dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MembershipTimes {
    /// Silence after which a host is suspect, and absence of its token after which it is dead,
    /// 500 ms by default.
    pub suspect: DurationNs,
    /// Silence after which it is dead, 5 s by default: a link that is cut for less costs nothing but
    /// the time.
    pub dead: DurationNs,
}

impl Default for MembershipTimes {
    fn default() -> Self {
        Self {
            suspect: DurationNs(DurationNs::SECOND.0 / 2),
            dead: DurationNs(5 * DurationNs::SECOND.0),
        }
    }
}

/// How a host stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostState {
    /// It has not said who it is.
    Expected,
    /// It is another than it should be, and gets no orders.
    Refused,
    /// It is there.
    Joined,
    /// It was not heard for a while.
    Suspect,
    /// It was not heard for too long, or has left.
    Dead,
}

/// What of a host may differ from what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// Another program version.
    Program,
    /// Another version of the documents.
    Documents,
}

/// In what a host differs from what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The host.
    pub host: String,
    /// What differs.
    pub what: Difference,
    /// Value found.
    pub found: String,
    /// Value needed.
    pub expected: String,
}

/// What became of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberEvent {
    /// It is there and may be given orders.
    Joined(HostHello),
    /// It must not take part.
    Refused(Refusal),
    /// It was not heard for a while, or its token is gone.
    Suspect(String),
    /// It was suspect and is heard again.
    Recovered(String),
    /// Its roles are lost.
    Dead(String),
}

#[derive(Debug)]
struct Member {
    state: HostState,
    /// Which start of it has joined.
    life: Option<u64>,
    heard: RunNs,
    /// Since when its token is gone.
    token_gone: Option<RunNs>,
    /// The coordinator has stood still since it was last heard, and it has been given time to say
    /// something; once, so that one that is gone is dead in the end.
    is_pardoned: bool,
}

/// The hosts of a run.
#[derive(Debug)]
pub struct Membership {
    version: String,
    protocol: u64,
    times: MembershipTimes,
    members: BTreeMap<String, Member>,
    events: VecDeque<MemberEvent>,
}

impl Membership {
    /// The hosts named, none of which has been heard, in a program of this version that speaks this
    /// version of the documents.
    pub fn new(
        hosts: impl IntoIterator<Item = String>,
        version: &str,
        protocol: u64,
        times: MembershipTimes,
        now: RunNs,
    ) -> Self {
        let member = |host| {
            let member = Member {
                state: HostState::Expected,
                life: None,
                heard: now,
                token_gone: None,
                is_pardoned: false,
            };
            (host, member)
        };
        Self {
            version: version.to_owned(),
            protocol,
            times,
            members: hosts.into_iter().map(member).collect(),
            events: VecDeque::new(),
        }
    }

    /// How a host stands; `None` for one that is none of the run's.
    pub fn state(&self, host: &str) -> Option<HostState> {
        self.members.get(host).map(|member| member.state)
    }

    /// Which start of a host takes part.
    pub fn life(&self, host: &str) -> Option<u64> {
        self.members.get(host)?.life
    }

    /// Names of the hosts.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.keys().map(String::as_str)
    }

    /// The hosts that have not said who they are.
    pub fn unanswered(&self) -> impl Iterator<Item = &str> {
        let of_state = self.members.iter();
        of_state
            .filter(|(_, member)| member.state == HostState::Expected)
            .map(|(host, _)| host.as_str())
    }

    /// Whether every host is there.
    pub fn is_complete(&self) -> bool {
        let mut members = self.members.values();
        members.all(|member| member.state == HostState::Joined)
    }

    /// A host has said who it is. Hosts that are none of the run's are not listened to, and one that
    /// has joined does not join again: another of its name changes nothing.
    pub fn handle_hello(&mut self, now: RunNs, hello: &HostHello) {
        let Some(member) = self.members.get_mut(&hello.host) else {
            return;
        };
        if member.state != HostState::Expected {
            return;
        }
        let expected = [
            (
                Difference::Program,
                hello.version.clone(),
                self.version.clone(),
            ),
            (
                Difference::Documents,
                hello.protocol.to_string(),
                self.protocol.to_string(),
            ),
        ];
        let differs = expected.into_iter().find(|(_, found, due)| found != due);
        if let Some((what, found, due)) = differs {
            (member.state, member.life) = (HostState::Refused, Some(hello.life));
            let refusal = Refusal {
                host: hello.host.clone(),
                what,
                found,
                expected: due,
            };
            self.events.push_back(MemberEvent::Refused(refusal));
            return;
        }
        member.state = HostState::Joined;
        member.life = Some(hello.life);
        member.heard = now;
        self.events.push_back(MemberEvent::Joined(hello.clone()));
    }

    /// A host that has joined is gone before the run has begun: nothing of it is lost, and it, or
    /// another in its place, may join.
    pub fn handle_gone_early(&mut self, host: &str, life: u64) {
        if let Some(member) = self.member(host, life) {
            (member.state, member.life) = (HostState::Expected, None);
            // That of the one that is gone says nothing of the next.
            member.token_gone = None;
        }
    }

    /// Words of a host, or for it, were lost on their way: nobody knows how it stands.
    pub fn handle_gap(&mut self, host: &str, life: u64) {
        let Some(member) = self.member(host, life) else {
            return;
        };
        if matches!(member.state, HostState::Joined | HostState::Suspect) {
            member.state = HostState::Dead;
            self.events.push_back(MemberEvent::Dead(host.to_owned()));
        }
    }

    /// The host of a name, if this is the start of it that has joined.
    fn member(&mut self, host: &str, life: u64) -> Option<&mut Member> {
        let member = self.members.get_mut(host)?;
        (member.life == Some(life)).then_some(member)
    }

    /// The liveliness token of a host has appeared or gone.
    pub fn handle_token(&mut self, now: RunNs, host: &str, life: u64, is_there: bool) {
        let Some(member) = self.member(host, life) else {
            return;
        };
        match (is_there, member.state) {
            (true, _) => {
                member.token_gone = None;
                self.handle_heard(now, host, life);
            }
            (false, HostState::Joined | HostState::Suspect) => {
                member.token_gone.get_or_insert(now);
                if member.state == HostState::Joined {
                    member.state = HostState::Suspect;
                    self.events.push_back(MemberEvent::Suspect(host.to_owned()));
                }
            }
            (false, _) => {}
        }
    }

    /// Something of a host has come. What was on its way when its token went does not bring it back.
    pub fn handle_heard(&mut self, now: RunNs, host: &str, life: u64) {
        let Some(member) = self.member(host, life) else {
            return;
        };
        member.heard = now;
        member.is_pardoned = false;
        if member.state == HostState::Suspect && member.token_gone.is_none() {
            member.state = HostState::Joined;
            let event = MemberEvent::Recovered(host.to_owned());
            self.events.push_back(event);
        }
    }

    /// Time has passed. That by which it is called late is no silence: the coordinator stood still, and
    /// what hosts said meanwhile may lie unread. Much later than due, nobody is suspect for it either, and
    /// who is suspect already has as long to be heard as it takes to become so.
    pub fn handle_timeout(&mut self, now: RunNs) {
        let due = self.poll_timeout().unwrap_or(RunNs::MAX);
        let late = now.since(due);
        let stood_still = late.0 > self.times.suspect.0 / 2;
        for (host, member) in &mut self.members {
            member.heard = match stood_still && member.state == HostState::Joined {
                true => now,
                false => member.heard.after(late).min(now),
            };
            member.token_gone = member.token_gone.map(|gone| gone.after(late).min(now));
            if stood_still && member.state == HostState::Suspect && !member.is_pardoned {
                let spent = self.times.dead.0.saturating_sub(self.times.suspect.0);
                member.heard = member.heard.max(RunNs(now.0.saturating_sub(spent)));
                member.token_gone = member.token_gone.map(|_| now);
                member.is_pardoned = true;
            }
            let silent = now.since(member.heard);
            let without_token = member.token_gone.map(|since| now.since(since));
            if member.state == HostState::Joined && silent >= self.times.suspect {
                member.state = HostState::Suspect;
                self.events.push_back(MemberEvent::Suspect(host.clone()));
            }
            let is_dead = silent >= self.times.dead
                || without_token.is_some_and(|time| time >= self.times.suspect);
            if member.state == HostState::Suspect && is_dead {
                member.state = HostState::Dead;
                self.events.push_back(MemberEvent::Dead(host.clone()));
            }
        }
    }

    /// When [`Membership::handle_timeout`] has something to do, at the latest; `None` for never.
    pub fn poll_timeout(&self) -> Option<RunNs> {
        let due = |member: &Member| match member.state {
            HostState::Joined => Some(member.heard.after(self.times.suspect)),
            HostState::Suspect => {
                let silence = member.heard.after(self.times.dead);
                let token = member.token_gone.map(|gone| gone.after(self.times.suspect));
                Some(token.map_or(silence, |token| token.min(silence)))
            }
            HostState::Expected | HostState::Refused | HostState::Dead => None,
        };
        self.members.values().filter_map(due).min()
    }

    /// What has become of the hosts.
    pub fn poll_event(&mut self) -> Option<MemberEvent> {
        self.events.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> RunNs {
        RunNs(ms * MS)
    }

    fn hello(host: &str) -> HostHello {
        HostHello {
            host: host.to_owned(),
            life: 1,
            version: "0.1.0".to_owned(),
            protocol: 1,
            streams_at: "127.0.0.1:4000".to_owned(),
            process: 5,
            mtu: 1500,
        }
    }

    fn two_hosts() -> Membership {
        let hosts = ["a", "b"].map(str::to_owned);
        Membership::new(hosts, "0.1.0", 1, MembershipTimes::default(), at(0))
    }

    fn events(membership: &mut Membership) -> Vec<MemberEvent> {
        std::iter::from_fn(|| membership.poll_event()).collect()
    }

    #[test]
    fn a_run_is_complete_when_every_host_has_answered() {
        let mut hosts = two_hosts();
        hosts.handle_hello(at(1), &hello("a"));
        hosts.handle_hello(at(1), &hello("stranger"));
        assert_eq!(hosts.unanswered().collect::<Vec<_>>(), ["b"]);
        assert!(!hosts.is_complete());
        hosts.handle_hello(at(2), &hello("b"));
        assert!(hosts.is_complete());
        let joined = ["a", "b"].map(|host| MemberEvent::Joined(hello(host)));
        assert_eq!(events(&mut hosts), joined);
        assert_eq!(hosts.state("stranger"), None);
    }

    #[test]
    fn another_version_is_refused_with_both() {
        let mut hosts = two_hosts();
        let other = HostHello {
            version: "0.0.9".to_owned(),
            ..hello("a")
        };
        hosts.handle_hello(at(1), &other);
        let other = HostHello {
            protocol: 2,
            ..hello("b")
        };
        hosts.handle_hello(at(1), &other);
        let refused = |host: &str, what, found: &str, expected: &str| {
            MemberEvent::Refused(Refusal {
                host: host.to_owned(),
                what,
                found: found.to_owned(),
                expected: expected.to_owned(),
            })
        };
        let expected = [
            refused("a", Difference::Program, "0.0.9", "0.1.0"),
            refused("b", Difference::Documents, "2", "1"),
        ];
        assert_eq!(events(&mut hosts), expected);
        // The right program does not join in the place of the wrong one.
        hosts.handle_hello(at(2), &hello("a"));
        assert_eq!(hosts.state("a"), Some(HostState::Refused));
        assert!(!hosts.is_complete());
    }

    #[test]
    fn silence_makes_suspect_then_dead_and_a_word_brings_back() {
        let mut hosts = two_hosts();
        hosts.handle_hello(at(0), &hello("a"));
        events(&mut hosts);
        assert_eq!(hosts.poll_timeout(), Some(at(500)));
        hosts.handle_timeout(at(499));
        assert_eq!(events(&mut hosts), []);
        hosts.handle_timeout(at(500));
        assert_eq!(events(&mut hosts), [MemberEvent::Suspect("a".to_owned())]);
        hosts.handle_heard(at(700), "a", 1);
        assert_eq!(events(&mut hosts), [MemberEvent::Recovered("a".to_owned())]);
        hosts.handle_timeout(at(1200));
        assert_eq!(hosts.poll_timeout(), Some(at(5700)));
        hosts.handle_timeout(at(5700));
        let expected = [
            MemberEvent::Suspect("a".to_owned()),
            MemberEvent::Dead("a".to_owned()),
        ];
        assert_eq!(events(&mut hosts), expected);
        // Dead is for good.
        hosts.handle_heard(at(5800), "a", 1);
        hosts.handle_token(at(5800), "a", 1, true);
        assert_eq!(events(&mut hosts), []);
        assert_eq!(hosts.state("a"), Some(HostState::Dead));
        assert_eq!(hosts.poll_timeout(), None);
    }

    /// As one that was stopped from its terminal, or whose terminal took no more.
    #[test]
    fn a_coordinator_that_stood_still_takes_nobody_for_dead() {
        let mut hosts = two_hosts();
        for host in ["a", "b"] {
            hosts.handle_hello(at(0), &hello(host));
        }
        events(&mut hosts);
        // Of what they have said in ten seconds it has read one word.
        hosts.handle_heard(at(10_000), "a", 1);
        hosts.handle_timeout(at(10_000));
        assert_eq!(events(&mut hosts), []);
        // Who is silent from then on is dead as soon as ever.
        hosts.handle_timeout(at(10_500));
        let suspect = ["a", "b"].map(|host| MemberEvent::Suspect(host.to_owned()));
        assert_eq!(events(&mut hosts), suspect);
        hosts.handle_timeout(at(15_000));
        let dead = ["a", "b"].map(|host| hosts.state(host));
        assert_eq!(dead, [Some(HostState::Dead); 2]);
    }

    #[test]
    fn a_coordinator_that_stood_still_gives_a_suspect_host_time_to_be_heard() {
        for token_is_gone in [false, true] {
            let mut hosts = two_hosts();
            hosts.handle_hello(at(0), &hello("a"));
            if token_is_gone {
                hosts.handle_token(at(400), "a", 1, false);
            }
            hosts.handle_timeout(at(500));
            events(&mut hosts);
            assert_eq!(hosts.state("a"), Some(HostState::Suspect));
            // What it has said meanwhile is read after that.
            hosts.handle_timeout(at(20_000));
            assert_eq!(events(&mut hosts), [], "token gone: {token_is_gone}");
            assert_eq!(hosts.poll_timeout(), Some(at(20_500)));
            let mut gone = hosts;
            let mut hosts = two_hosts();
            hosts.handle_hello(at(0), &hello("a"));
            hosts.handle_timeout(at(500));
            hosts.handle_timeout(at(20_000));
            hosts.handle_heard(at(20_001), "a", 1);
            assert_eq!(hosts.state("a"), Some(HostState::Joined));
            // One that is gone is dead, even if the coordinator stands still again and again.
            let mut now = 20_000;
            for _ in 0..20 {
                now += 900;
                gone.handle_timeout(at(now));
            }
            assert_eq!(gone.state("a"), Some(HostState::Dead));
        }
    }

    #[test]
    fn one_that_comes_in_the_place_of_another_is_not_the_host() {
        let mut hosts = two_hosts();
        hosts.handle_hello(at(0), &hello("a"));
        events(&mut hosts);
        hosts.handle_token(at(10), "a", 1, false);
        let other = HostHello {
            life: 2,
            ..hello("a")
        };
        hosts.handle_token(at(20), "a", 2, true);
        hosts.handle_hello(at(20), &other);
        hosts.handle_heard(at(400), "a", 2);
        assert_eq!(hosts.life("a"), Some(1));
        hosts.handle_timeout(at(510));
        let expected = [
            MemberEvent::Suspect("a".to_owned()),
            MemberEvent::Dead("a".to_owned()),
        ];
        assert_eq!(events(&mut hosts), expected);
        // Before the run has begun it may be.
        hosts.handle_hello(at(600), &hello("b"));
        hosts.handle_gone_early("b", 2);
        assert_eq!(hosts.life("b"), Some(1));
        hosts.handle_gone_early("b", 1);
        let other = HostHello {
            life: 2,
            ..hello("b")
        };
        hosts.handle_hello(at(600), &other);
        assert_eq!(hosts.life("b"), Some(2));
    }

    #[test]
    fn one_that_comes_again_before_the_run_begins_begins_anew() {
        let mut hosts = two_hosts();
        hosts.handle_hello(at(0), &hello("a"));
        hosts.handle_token(at(10), "a", 1, false);
        hosts.handle_gone_early("a", 1);
        let again = HostHello {
            life: 2,
            ..hello("a")
        };
        hosts.handle_hello(at(1000), &again);
        hosts.handle_timeout(at(1500));
        assert_eq!(hosts.state("a"), Some(HostState::Suspect));
        hosts.handle_heard(at(1600), "a", 2);
        assert_eq!(hosts.state("a"), Some(HostState::Joined));
    }

    #[test]
    fn a_host_with_missing_words_is_dead() {
        let mut hosts = two_hosts();
        hosts.handle_hello(at(0), &hello("a"));
        events(&mut hosts);
        hosts.handle_gap("a", 2);
        assert_eq!(hosts.state("a"), Some(HostState::Joined));
        hosts.handle_gap("a", 1);
        hosts.handle_gap("a", 1);
        hosts.handle_heard(at(1), "a", 1);
        assert_eq!(events(&mut hosts), [MemberEvent::Dead("a".to_owned())]);
    }

    #[test]
    fn a_token_that_goes_makes_suspect_whatever_is_on_its_way() {
        let mut hosts = two_hosts();
        hosts.handle_hello(at(0), &hello("a"));
        hosts.handle_token(at(10), "a", 1, false);
        hosts.handle_heard(at(11), "a", 1);
        assert_eq!(hosts.state("a"), Some(HostState::Suspect));
        hosts.handle_token(at(500), "a", 1, true);
        assert_eq!(hosts.state("a"), Some(HostState::Joined));
        hosts.handle_token(at(1000), "a", 1, false);
        assert_eq!(hosts.poll_timeout(), Some(at(1500)));
        hosts.handle_timeout(at(1499));
        assert_eq!(hosts.state("a"), Some(HostState::Suspect));
        hosts.handle_timeout(at(1500));
        assert_eq!(hosts.state("a"), Some(HostState::Dead));
    }
}
