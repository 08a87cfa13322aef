"""A small client of containerd's Container Runtime Interface: runs and removes pods.

    cri.py SOCKET run NAME NAMESPACE CGROUP ANNOTATIONS [CONTAINER/SHARES/CPUS ...]   prints the pod's number
    cri.py SOCKET remove NUMBER

Messages are encoded by hand, by the fields of api.proto of k8s.io/cri-api, version v1.
"""

import json
import sys

import grpc

IMAGE = "docker.io/library/numaherd:0.1.0"


def varint(number):
    octets = b""
    while number > 127:
        octets += bytes([number & 127 | 128])
        number >>= 7
    return octets + bytes([number])


def field(number, value):
    """A field with a number, or with a text or message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def call(channel, method, message):
    method = channel.unary_unary(f"/runtime.v1.RuntimeService/{method}")
    return method(message, timeout=30)


def number_of(answer):
    """The first field, a text of less than 128 bytes."""
    return answer[2 : 2 + answer[1]].decode()


def run(channel, name, namespace, cgroup, annotations, *containers):
    metadata = field(1, name) + field(2, "uid-" + name) + field(3, namespace)
    # The node's network, so that none has to be made.
    namespaces = field(1, 2) + field(2, 1)
    pod = field(1, metadata)
    for key, value in json.loads(annotations).items():
        pod += field(7, field(1, key) + field(2, value))
    pod += field(8, field(1, cgroup) + field(2, field(1, namespaces)))
    sandbox = number_of(call(channel, "RunPodSandbox", field(1, pod)))
    for container in containers:
        name, shares, cpus = container.split("/")
        resources = field(3, int(shares)) + (field(6, cpus) if cpus else b"")
        config = field(1, field(1, name)) + field(2, field(1, IMAGE)) + field(15, field(1, resources))
        created = call(channel, "CreateContainer", field(1, sandbox) + field(2, config) + field(3, pod))
        call(channel, "StartContainer", field(1, number_of(created)))
    print(sandbox)


def remove(channel, sandbox):
    for method in ("StopPodSandbox", "RemovePodSandbox"):
        call(channel, method, field(1, sandbox))


with grpc.insecure_channel("unix://" + sys.argv[1]) as channel:
    {"run": run, "remove": remove}[sys.argv[2]](channel, *sys.argv[3:])
