//! Random transactions: both stores answer like a plain model of a session, and so does a file that was opened again,
//! and one that was rewritten (I8, I11, I12).

use std::collections::BTreeMap;

use pirn::model::{Entry, EntryBody, EntryId, Usage, UsageRow, Write};
use pirn::port::{BranchScan, Stats, Store};
use pirn::session::jsonl::{self, Closed};
use pirn::session::memory;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    LISTS, NAMESPACES, Place, Snapshot, append, clock, delete_list, entry, options, said, set, snapshot, usage_row,
};

/// A write, before it has an id and a parent.
#[derive(Clone, Debug)]
enum Act {
    Entry { body: EntryBody, parent: Option<prop::sample::Index> },
    Usage { tokens: u32, cost: f64 },
    Set(&'static str, &'static str, Value),
    Delete(&'static str, &'static str),
    Append(&'static str, &'static str, Value),
    DeleteList(&'static str, &'static str),
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..4).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

fn body() -> impl Strategy<Value = EntryBody> {
    prop_oneof![
        any::<String>().prop_map(|text| said(&text)),
        (any::<String>(), prop::option::of(value()))
            .prop_map(|(custom_type, data)| EntryBody::Custom { custom_type, data }),
        ("[a-l]{1,8}", value()).prop_map(|(word, value)| {
            let members = [("type".to_owned(), json!(word)), ("x".to_owned(), value)];
            EntryBody::Other(members.into_iter().collect())
        }),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let namespace = || prop::sample::select(&NAMESPACES[..]);
    let key = || prop::sample::select(&LISTS[..]);
    prop_oneof![
        4 => (body(), prop::option::weighted(0.8, any::<prop::sample::Index>())).prop_map(|(body, parent)| Act::Entry { body, parent }),
        1 => (any::<u32>(), 0.0..10.0_f64).prop_map(|(tokens, cost)| Act::Usage { tokens, cost }),
        3 => (namespace(), key(), value()).prop_map(|(namespace, key, value)| Act::Set(namespace, key, value)),
        1 => (namespace(), key()).prop_map(|(namespace, key)| Act::Delete(namespace, key)),
        3 => (namespace(), key(), value()).prop_map(|(namespace, key, value)| Act::Append(namespace, key, value)),
        1 => (namespace(), key()).prop_map(|(namespace, key)| Act::DeleteList(namespace, key)),
    ]
}

/// A session as simple as can be.
#[derive(Default)]
struct Plain {
    entries: Vec<Entry>,
    usage: Vec<UsageRow>,
    values: BTreeMap<(String, String), Value>,
    lists: BTreeMap<(String, String), Vec<Value>>,
    seq: u64,
    ids: u64,
}

impl Plain {
    fn write(&mut self, act: Act) -> Write {
        self.ids += 1;
        let name = format!("id-{}", self.ids);
        let write = match act {
            Act::Entry { body, parent } => {
                let parent = parent.filter(|_| !self.entries.is_empty());
                let parent = parent.map(|at| at.get(&self.entries).id.as_str().to_owned());
                entry(&name, parent.as_deref(), body)
            }
            Act::Usage { tokens, cost } => usage_row(&name, u64::from(tokens), cost),
            Act::Set(namespace, key, value) => set(namespace, key, value),
            Act::Delete(namespace, key) => Write::delete(namespace, key),
            Act::Append(namespace, key, value) => append(namespace, key, value),
            Act::DeleteList(namespace, key) => delete_list(namespace, key),
        };
        self.apply(write.clone());
        write
    }

    fn apply(&mut self, write: Write) {
        self.seq += 1;
        match write {
            Write::Entry { id, parent_id, body } => {
                self.entries.push(Entry { id, parent_id, seq: self.seq, timestamp: 0, body });
            }
            Write::Usage(row) => self.usage.push(row),
            Write::Set { namespace, key, value } => drop(self.values.insert((namespace, key), value)),
            Write::Delete { namespace, key } => drop(self.values.remove(&(namespace, key))),
            Write::Append { namespace, key, value } => self.lists.entry((namespace, key)).or_default().push(value),
            Write::DeleteList { namespace, key } => drop(self.lists.remove(&(namespace, key))),
        }
    }

    fn snapshot(&self) -> Snapshot {
        let mut usage = Usage::default();
        self.usage.iter().for_each(|row| usage.add(&row.usage));
        let is_message = |entry: &&Entry| matches!(entry.body, EntryBody::Message { .. });
        let list = |namespace: &&str, key: &&str| {
            let values = self.lists.get(&((*namespace).to_owned(), (*key).to_owned())).cloned().unwrap_or_default();
            ((*namespace).to_owned(), (*key).to_owned(), values)
        };
        let of = |namespace: &'static str| {
            let values = self.values.iter().filter(move |((found, _), _)| found == namespace);
            values.map(|((namespace, key), value)| (namespace.clone(), key.clone(), value.clone()))
        };
        Snapshot {
            entries: self.entries.clone(),
            usage: self.usage.clone(),
            values: NAMESPACES.into_iter().flat_map(of).collect(),
            lists: NAMESPACES.iter().flat_map(|namespace| LISTS.iter().map(|key| list(namespace, key))).collect(),
            stats: Stats { message_count: self.entries.iter().filter(is_message).count() as u64, usage },
        }
    }

    fn path(&self, start: &EntryId) -> Vec<EntryId> {
        let mut path = vec![start.clone()];
        while let Some(parent) =
            self.entries.iter().find(|entry| entry.id == path[path.len() - 1]).unwrap().parent_id.clone()
        {
            path.push(parent);
        }
        path
    }

    fn check(&self, what: &str, store: &dyn Store) {
        let mut found = snapshot(store);
        let times: Vec<u64> = found.entries.iter().map(|entry| entry.timestamp).collect();
        assert!(times.is_sorted(), "{what}: {times:?}");
        found.entries.iter_mut().for_each(|entry| entry.timestamp = 0);
        assert_eq!(found, self.snapshot(), "{what}");
        for entry in &self.entries {
            let scan = BranchScan { start: Some(entry.id.clone()), ..BranchScan::default() };
            let path: Vec<EntryId> = store.branch(&scan).unwrap().into_iter().map(|entry| entry.id).collect();
            assert_eq!(path, self.path(&entry.id), "{what}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn both_stores_answer_like_a_plain_model(
        transactions in prop::collection::vec(prop::collection::vec(act(), 0..6), 0..12),
        reopen in prop::collection::vec(any::<bool>(), 12),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut plain = Plain::default();
            let memory = memory(clock());
            let place = Place::new();
            let mut file = place.create(options()).await;
            for (acts, reopen) in transactions.into_iter().zip(reopen) {
                let writes: Vec<Write> = acts.into_iter().map(|act| plain.write(act)).collect();
                let a = memory.commit(writes.clone()).await.unwrap();
                let b = file.commit(writes).await.unwrap();
                assert_eq!((a.first_seq, &a.seqs, &a.stats), (b.first_seq, &b.seqs, &b.stats));
                assert_eq!(a.stats, plain.snapshot().stats);
                if reopen {
                    drop(file);
                    file = place.open(options()).await.unwrap();
                }
            }
            plain.check("memory", &memory);
            plain.check("file", &file);
            // Enough that is dead for a rewrite.
            let dead = "d".repeat(300_000 + 2 * place.bytes().len());
            for write in [set("x.dead", "k", json!(dead)), Write::delete("x.dead", "k")] {
                plain.apply(write.clone());
                file.commit(vec![write]).await.unwrap();
            }
            assert_eq!(file.close().await.unwrap(), Closed::Rewritten);
            plain.check("closed", &file);
            plain.check("rewritten", &jsonl::read(&place.file()).unwrap());
            let file = place.open(options()).await.unwrap();
            plain.check("opened again", &file);
            assert_eq!(file.commit(Vec::new()).await.unwrap().first_seq, plain.seq + 1);
        });
    }
}
