//! The sinks, inputs and conditions that a daemon has, to say which there are where a name is of none.

use livetime_client::TimingClient;
use serde_json::Value;

use super::Failure;

/// What the daemon had when it was asked.
pub(super) struct KnownObjects(Value);

impl KnownObjects {
    /// Asks the daemon.
    pub(super) fn of(client: &TimingClient) -> Result<Self, Failure> {
        Ok(Self(serde_json::from_str(&client.status()?)?))
    }

    /// The kind of an output or a bus of that name: a sink of the receiver, not of a program.
    pub(super) fn kind_of_sink(&self, name: &str) -> Result<String, Failure> {
        let sinks: Vec<&str> = self.sinks(|kind| kind != "software").collect();
        one_of(name, "output or bus", &sinks)?;
        let mut sinks = list(&self.0["sinks"]);
        let found = sinks.find(|sink| sink["name"] == name);
        let kind = found.and_then(|sink| sink["kind"].as_str());
        Ok(kind.unwrap_or_default().to_owned())
    }

    /// Whether a sink has a condition of that number, as they are listed; it was given in one of the
    /// ways that there are.
    pub(super) fn check_condition(
        &self,
        sink: &str,
        number: &str,
        given: &str,
    ) -> Result<(), Failure> {
        let sinks: Vec<&str> = self.sinks(|_| true).collect();
        one_of(sink, "sink", &sinks)?;
        let mut sinks = list(&self.0["sinks"]);
        let found = sinks.find(|one| one["name"] == sink);
        let conditions = found.map_or(&Value::Null, |sink| &sink["conditions"]);
        let numbers: Vec<&str> = words(list(conditions), "condition").collect();
        if numbers.contains(&number) {
            return Ok(());
        }
        one_of(given, &format!("condition of {sink}"), &numbers)
    }

    /// Whether there is an input of that name, or else an output.
    pub(super) fn is_input(&self, name: &str) -> Result<bool, Failure> {
        let inputs: Vec<&str> = words(list(&self.0["inputs"]), "name").collect();
        if inputs.contains(&name) {
            return Ok(true);
        }
        let all: Vec<&str> = self.sinks(|kind| kind == "output").chain(inputs).collect();
        one_of(name, "output or input", &all).map(|()| false)
    }

    /// Names of the sinks of such kinds.
    fn sinks(&self, is_sought: fn(&str) -> bool) -> impl Iterator<Item = &str> {
        let sinks =
            list(&self.0["sinks"]).filter(move |sink| sink["kind"].as_str().is_some_and(is_sought));
        words(sinks, "name")
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn words<'a>(
    values: impl Iterator<Item = &'a Value>,
    key: &'static str,
) -> impl Iterator<Item = &'a str> {
    values.filter_map(move |value| value[key].as_str())
}

fn one_of(name: &str, what: &str, all: &[&str]) -> Result<(), Failure> {
    if all.contains(&name) {
        return Ok(());
    }
    let there = match all {
        [] => "there is none".to_owned(),
        [one] => format!("there is {one}"),
        all => format!("there are {}", all.join(", ")),
    };
    Err(Failure::new(format!(
        "`{name}` is no {what}; {there} (`livetime timing status` lists all)"
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known() -> KnownObjects {
        KnownObjects(json!({
            "sinks": [
                {"name": "IO1", "kind": "output", "conditions": [{"condition": "3.0"}]},
                {"name": "bus1", "kind": "bus_tag", "conditions": []},
                {"name": "mine", "kind": "software", "conditions": [{"condition": "4.1"}]},
            ],
            "inputs": [{"name": "IN1"}],
        }))
    }

    #[test]
    fn a_name_of_nothing_is_answered_with_what_there_is() {
        let known = known();
        let said = |result: Result<(), Failure>| result.map_err(|Failure(text)| text);
        assert_eq!(said(known.check_condition("IO1", "3.0", "c3_0")), Ok(()));
        assert_eq!(said(known.check_condition("mine", "4.1", "4.1")), Ok(()));
        let all = "(`livetime timing status` lists all)";
        for (result, expected) in [
            (
                known.kind_of_sink("mine").map(drop),
                "`mine` is no output or bus; there are IO1, bus1",
            ),
            (
                known.check_condition("IO1", "3.1", "c3_1"),
                "`c3_1` is no condition of IO1; there is 3.0",
            ),
            (
                known.check_condition("bus1", "3.0", "3.0"),
                "`3.0` is no condition of bus1; there is none",
            ),
            (
                known.is_input("bus1").map(drop),
                "`bus1` is no output or input; there are IO1, IN1",
            ),
        ] {
            assert_eq!(said(result), Err(format!("{expected} {all}")));
        }
        assert_eq!(known.kind_of_sink("bus1").ok().as_deref(), Some("bus_tag"));
        assert_eq!(known.is_input("IN1").ok(), Some(true));
        assert_eq!(known.is_input("IO1").ok(), Some(false));
    }
}
