//! The plugin: passes on what a runtime says, and answers at once with nothing to change.

use std::sync::mpsc::Sender;

use nri::api::{
    ConfigureRequest, Container, ContainerRequest, Event, PodSandbox, StateChangeEvent,
    UpdateContainerRequest,
};
use nri::{Events, Plugin, Refusal};

use crate::pods::{self, Change};
use crate::{say, shown};

/// The events that the plugin subscribes to.
const EVENTS: [Event; 7] = [
    Event::RunPodSandbox,
    Event::StopPodSandbox,
    Event::RemovePodSandbox,
    Event::CreateContainer,
    Event::UpdateContainer,
    Event::StopContainer,
    Event::RemoveContainer,
];

/// Passes on what happens.
pub struct Watcher {
    changes: Sender<Change>,
}

impl Watcher {
    /// Passes changes on to this channel, if anybody still listens.
    pub fn new(changes: Sender<Change>) -> Self {
        Self { changes }
    }

    fn pass_on(&self, change: Option<Change>) {
        if let Some(change) = change {
            let _ = self.changes.send(change);
        }
    }
}

impl Plugin for Watcher {
    fn configure(&mut self, runtime: ConfigureRequest) -> Result<Events, Refusal> {
        let (name, version) = (
            shown(&runtime.runtime_name),
            shown(&runtime.runtime_version),
        );
        say(format!("watching the pods of {name} {version}"));
        Ok(Events::of(&EVENTS))
    }

    fn synchronize(
        &mut self,
        pods: Vec<PodSandbox>,
        containers: Vec<Container>,
    ) -> Result<(), Refusal> {
        let pods = pods.into_iter().map(pods::pod).collect();
        let containers = containers.into_iter().map(pods::container).collect();
        self.pass_on(Some(Change::All(pods, containers)));
        Ok(())
    }

    fn create_container(&mut self, request: ContainerRequest) -> Result<(), Refusal> {
        let container = request.container.map(pods::container);
        self.pass_on(container.map(|(id, container)| Change::Container(id, container)));
        Ok(())
    }

    fn update_container(&mut self, request: UpdateContainerRequest) -> Result<(), Refusal> {
        let cpu = request.linux_resources.and_then(|resources| resources.cpu);
        let change = request.container.zip(cpu);
        self.pass_on(change.map(|(container, cpu)| Change::Resources(container.id, cpu)));
        Ok(())
    }

    fn stop_container(&mut self, request: ContainerRequest) -> Result<(), Refusal> {
        let container = request.container;
        self.pass_on(container.map(|container| Change::NoContainer(container.id)));
        Ok(())
    }

    fn state_changed(&mut self, event: StateChangeEvent) -> Result<(), Refusal> {
        let (what, pod, container) = (event.event(), event.pod, event.container);
        let change = match what {
            Event::RunPodSandbox => pod.map(pods::pod).map(|(id, pod)| Change::Pod(id, pod)),
            Event::StopPodSandbox | Event::RemovePodSandbox => pod.map(|pod| Change::NoPod(pod.id)),
            Event::RemoveContainer => container.map(|container| Change::NoContainer(container.id)),
            _ => None,
        };
        self.pass_on(change);
        Ok(())
    }
}
