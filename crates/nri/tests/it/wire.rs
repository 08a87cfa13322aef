//! Messages as other implementations encode them: the bytes are put together here by hand, field by field, from
//! `api.proto` of github.com/containerd/nri at v0.8.0, so that a wrong number in this crate cannot hide.

use nri::api::{
    ConfigureRequest, ConfigureResponse, Container, Empty, PodSandbox, RegisterPluginRequest,
    StateChangeEvent, SynchronizeRequest, SynchronizeResponse, UpdateContainerRequest,
};
use prost::Message as _;

/// A field that holds bytes: a text or a message.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    prost::encoding::encode_varint(u64::from(number) << 3 | 2, &mut all);
    prost::encoding::encode_varint(bytes.len() as u64, &mut all);
    all.extend(bytes);
    all
}

/// A field that holds a number.
fn number(field: u8, value: u64) -> Vec<u8> {
    let mut all = Vec::new();
    prost::encoding::encode_varint(u64::from(field) << 3, &mut all);
    prost::encoding::encode_varint(value, &mut all);
    all
}

fn entry(number: u8, key: &str, value: &str) -> Vec<u8> {
    let entry = [field(1, key.as_bytes()), field(2, value.as_bytes())];
    field(number, &entry.concat())
}

#[test]
fn a_pod_is_read() {
    let linux = [
        field(3, b"/kubepods/burstable/pod1"),
        field(6, &field(2, &field(6, b"0-3"))),
    ];
    let bytes = [
        field(1, b"sandbox"),
        field(2, b"web-0"),
        field(3, b"uid"),
        field(4, b"shop"),
        entry(5, "app", "web"),
        entry(6, "numaherd.io/policy", "none"),
        field(7, b"kata"),
        field(8, &linux.concat()),
        number(9, 4711),
        field(10, b"10.0.0.1"),
        // What is not read is skipped, as is a later version's field.
        field(90, b"new"),
    ];
    let pod = PodSandbox::decode(&*bytes.concat()).unwrap();
    assert_eq!((&*pod.id, &*pod.name), ("sandbox", "web-0"));
    assert_eq!(pod.namespace, "shop");
    assert_eq!(pod.labels["app"], "web");
    assert_eq!(pod.annotations["numaherd.io/policy"], "none");
    let linux = pod.linux.unwrap();
    assert_eq!(linux.cgroup_parent, "/kubepods/burstable/pod1");
}

#[test]
fn a_container_is_read() {
    let cpu = [
        field(1, &number(1, 2048)),
        field(2, &number(1, 200_000)),
        field(3, &number(1, 100_000)),
        field(6, b"2-3"),
        field(7, b"0"),
    ];
    let memory = field(1, &number(1, 1 << 30));
    let resources = [
        field(1, &memory),
        field(2, &cpu.concat()),
        entry(6, "memory.high", "max"),
        field(8, &number(1, 100)),
    ];
    let linux = [
        field(3, &resources.concat()),
        // -997, as a message of one number.
        field(4, &number(1, (-997i64).cast_unsigned())),
        field(5, b"kubepods-pod1.slice:cri-containerd:c1"),
    ];
    let bytes = [
        field(1, b"c1"),
        field(2, b"sandbox"),
        field(3, b"app"),
        number(4, 3),
        entry(6, "a", "b"),
        field(11, &linux.concat()),
        number(12, 99),
    ];
    let container = Container::decode(&*bytes.concat()).unwrap();
    assert_eq!(
        (&*container.id, &*container.pod_sandbox_id),
        ("c1", "sandbox")
    );
    let linux = container.linux.unwrap();
    assert_eq!(linux.cgroups_path, "kubepods-pod1.slice:cri-containerd:c1");
    let resources = linux.resources.unwrap();
    let cpu = resources.cpu.unwrap();
    assert_eq!((cpu.shares, cpu.quota), (Some(2048), Some(200_000)));
    assert_eq!(cpu.cpus, "2-3");
}

#[test]
fn requests_are_read() {
    let bytes = [
        field(1, b"text"),
        field(2, b"containerd"),
        field(3, b"1.7.24"),
        number(4, 5000),
        number(5, 2000),
    ];
    let configure = ConfigureRequest::decode(&*bytes.concat()).unwrap();
    assert_eq!(configure.runtime_name, "containerd");
    assert_eq!(configure.runtime_version, "1.7.24");

    let bytes = [
        field(1, &field(2, b"pod")),
        field(2, &field(3, b"c")),
        number(3, 1),
    ];
    let list = SynchronizeRequest::decode(&*bytes.concat()).unwrap();
    assert_eq!(
        (&*list.pods[0].name, &*list.containers[0].name),
        ("pod", "c")
    );
    assert!(list.more);

    let bytes = [
        number(1, 11),
        field(2, &field(2, b"pod")),
        field(3, &field(3, b"c")),
    ];
    let event = StateChangeEvent::decode(&*bytes.concat()).unwrap();
    assert_eq!(event.event(), nri::api::Event::RemoveContainer);
    assert_eq!(
        (&*event.pod.unwrap().name, &*event.container.unwrap().name),
        ("pod", "c")
    );

    let bytes = [
        field(2, &field(3, b"c")),
        field(3, &field(2, &field(6, b"1"))),
    ];
    let update = UpdateContainerRequest::decode(&*bytes.concat()).unwrap();
    assert_eq!(update.linux_resources.unwrap().cpu.unwrap().cpus, "1");
}

#[test]
fn what_a_plugin_says_is_written() {
    let register = RegisterPluginRequest {
        plugin_name: "numaherd".to_owned(),
        plugin_idx: "90".to_owned(),
    };
    assert_eq!(
        register.encode_to_vec(),
        [field(1, b"numaherd"), field(2, b"90")].concat()
    );
    assert_eq!(
        ConfigureResponse { events: 9 }.encode_to_vec(),
        number(2, 9)
    );
    let more = SynchronizeResponse { more: true };
    assert_eq!(more.encode_to_vec(), number(2, 1));
    assert_eq!(Empty {}.encode_to_vec(), b"");
}
