//! Who is who: the role of a user or group, from a short file.
//!
//! ```text
//! # who      number or all   role
//! user       0               admin
//! group      1000            operate
//! others     observe
//! ```
//!
//! A user's line counts before those of the groups, and of several groups the highest role counts.
//! Without a file the daemon's own user and root are admin and everybody else may observe. What a
//! role may do is decided in `livetime_timing::ownership`.

use std::collections::BTreeMap;

use livetime_timing::Role;

/// Roles by user and group number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRules {
    users: BTreeMap<u32, Option<Role>>,
    groups: BTreeMap<u32, Option<Role>>,
    others: Option<Role>,
}

/// A line that is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessRulesError {
    /// It cannot be read.
    #[error(
        "line {line} of the access rules is `{found}`; \
         write `user NUMBER ROLE`, `group NUMBER ROLE` or `others ROLE` with observe, operate, admin or none"
    )]
    Rule {
        /// Line, from 1.
        line: usize,
        /// What it says.
        found: String,
    },
    /// A line before is about the same.
    #[error(
        "line {line} of the access rules is `{found}`, and line {first} is about {of} too; \
         leave one of them"
    )]
    Again {
        /// Line, from 1.
        line: usize,
        /// What it says.
        found: String,
        /// The line before, from 1.
        first: usize,
        /// Whom both are about.
        of: String,
    },
}

impl AccessRules {
    /// This user and root are admin, everybody else may observe.
    pub fn for_user(uid: u32) -> Self {
        Self {
            users: [0, uid].map(|uid| (uid, Some(Role::Admin))).into(),
            groups: BTreeMap::new(),
            others: Some(Role::Observe),
        }
    }

    /// Reads rules; who is named nowhere may nothing.
    ///
    /// # Errors
    /// The first line that is no rule.
    pub fn parse(text: &str) -> Result<Self, AccessRulesError> {
        let mut rules = Self {
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
            others: None,
        };
        let mut lines: BTreeMap<String, usize> = BTreeMap::new();
        for (line, text) in (1..).zip(text.lines()) {
            let rule = text.split('#').next().unwrap_or("").trim();
            if rule.is_empty() {
                continue;
            }
            let found = rule.to_owned();
            let Some(of) = rules.add(rule) else {
                return Err(AccessRulesError::Rule { line, found });
            };
            if let Some(&first) = lines.get(&of) {
                return Err(AccessRulesError::Again {
                    line,
                    found,
                    first,
                    of,
                });
            }
            lines.insert(of, line);
        }
        Ok(rules)
    }

    /// Takes in a rule; whom it is about.
    fn add(&mut self, rule: &str) -> Option<String> {
        let words: Vec<&str> = rule.split_whitespace().collect();
        Some(match words.as_slice() {
            ["user", number, role] => {
                let number = number.parse().ok()?;
                self.users.insert(number, parse_role(role)?);
                format!("user {number}")
            }
            ["group", number, role] => {
                let number = number.parse().ok()?;
                self.groups.insert(number, parse_role(role)?);
                format!("group {number}")
            }
            ["others", role] => {
                self.others = parse_role(role)?;
                "others".to_owned()
            }
            _ => return None,
        })
    }

    /// The role of a user with these groups; `None` may not even connect.
    pub fn role_of(&self, uid: u32, gids: &[u32]) -> Option<Role> {
        let by_group = gids.iter().filter_map(|gid| self.groups.get(gid)).max();
        let named = self.users.get(&uid).or(by_group);
        named.copied().unwrap_or(self.others)
    }
}

/// Outer `None`: no role; inner: the word `none`.
fn parse_role(word: &str) -> Option<Option<Role>> {
    if word == "none" {
        return Some(None);
    }
    [Role::Observe, Role::Operate, Role::Admin]
        .into_iter()
        .find(|role| role.key() == word)
        .map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_come_before_groups_and_groups_before_others() {
        let text =
            "user 5 observe # an operator's guest\n\ngroup 7 operate\ngroup 8 admin\nothers none\n";
        let rules = AccessRules::parse(text).unwrap();
        assert_eq!(rules.role_of(5, &[8]), Some(Role::Observe));
        assert_eq!(rules.role_of(6, &[7, 8]), Some(Role::Admin));
        assert_eq!(rules.role_of(6, &[7]), Some(Role::Operate));
        assert_eq!(rules.role_of(6, &[]), None);
        let barred = AccessRules::parse("user 5 none\ngroup 7 none\nothers observe\n").unwrap();
        assert_eq!(barred.role_of(5, &[]), None);
        assert_eq!(barred.role_of(6, &[7]), None);
        assert_eq!(barred.role_of(6, &[8]), Some(Role::Observe));
        let usual = AccessRules::for_user(1000);
        assert_eq!(usual.role_of(1000, &[]), Some(Role::Admin));
        assert_eq!(usual.role_of(1001, &[]), Some(Role::Observe));
    }

    #[test]
    fn a_bad_line_is_named() {
        for (text, line) in [
            ("user x admin", 1),
            ("\nuser 5 king", 2),
            ("others", 1),
            ("group 1 nobody", 1),
        ] {
            let found = text.trim().to_owned();
            let error = AccessRulesError::Rule { line, found };
            assert_eq!(AccessRules::parse(text), Err(error));
        }
    }

    #[test]
    fn nobody_has_two_rules() {
        for (text, of) in [
            ("user 5 admin\ngroup 5 operate\nuser 05 observe", "user 5"),
            ("group 7 admin\n\ngroup 7 admin", "group 7"),
            ("others none\n# two\nothers observe", "others"),
        ] {
            let error = AccessRules::parse(text).unwrap_err().to_string();
            assert!(
                error.starts_with("line 3 of the access rules is `"),
                "{error}"
            );
            assert!(
                error.contains(&format!("line 1 is about {of} too")),
                "{error}"
            );
        }
    }
}
