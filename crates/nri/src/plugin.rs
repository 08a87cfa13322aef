//! The interface of a plugin: the events that it subscribes to, and its answers.

use crate::api::{
    ConfigureRequest, Container, ContainerRequest, Event, PodSandbox, StateChangeEvent,
    UpdateContainerRequest,
};

/// The events that a plugin subscribes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events(i32);

impl Events {
    /// All events of the runtime. NRI cannot express a subscription to none.
    pub const ALL: Self = Self(0);

    /// Subscribes to these events.
    pub fn of(events: &[Event]) -> Self {
        let bit = |event: &Event| match *event {
            Event::Unknown => 0,
            known => 1 << (known as i32 - 1),
        };
        Self(events.iter().map(bit).fold(0, |all, bit| all | bit))
    }

    /// The bits that are sent: one for each event, with event 1 in the lowest bit.
    pub fn bits(self) -> i32 {
        self.0
    }
}

/// Why a plugin refuses a request. The runtime then refuses what it was going to do: it does not create the container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// A plugin. Its answers are due at once: pods wait for them.
pub trait Plugin {
    /// Returns the events that the plugin subscribes to. Called once, after the plugin has registered.
    ///
    /// # Errors
    /// The plugin refuses the configuration; the runtime ends the session.
    fn configure(&mut self, runtime: ConfigureRequest) -> Result<Events, Refusal>;

    /// Receives all existing pods and containers. Called once, after `configure`.
    ///
    /// # Errors
    /// The plugin cannot continue; the runtime ends the session.
    fn synchronize(
        &mut self,
        pods: Vec<PodSandbox>,
        containers: Vec<Container>,
    ) -> Result<(), Refusal> {
        let _ = (pods, containers);
        Ok(())
    }

    /// A container is about to be created.
    ///
    /// # Errors
    /// The container must not be created.
    fn create_container(&mut self, request: ContainerRequest) -> Result<(), Refusal> {
        let _ = request;
        Ok(())
    }

    /// A container's resources are about to be changed.
    ///
    /// # Errors
    /// They must not be changed.
    fn update_container(&mut self, request: UpdateContainerRequest) -> Result<(), Refusal> {
        let _ = request;
        Ok(())
    }

    /// A container has stopped.
    ///
    /// # Errors
    /// The runtime only records the refusal.
    fn stop_container(&mut self, request: ContainerRequest) -> Result<(), Refusal> {
        let _ = request;
        Ok(())
    }

    /// Something else has happened to a pod or a container.
    ///
    /// # Errors
    /// The plugin refuses the event. The runtime prevents it where it still can.
    fn state_changed(&mut self, event: StateChangeEvent) -> Result<(), Refusal> {
        let _ = event;
        Ok(())
    }

    /// The runtime is about to end.
    fn shut_down(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_the_bit_before_its_number() {
        assert_eq!(Events::of(&[Event::RunPodSandbox]).bits(), 1);
        let events = [Event::CreateContainer, Event::RemoveContainer];
        assert_eq!(Events::of(&events).bits(), (1 << 3) | (1 << 10));
        assert_eq!(Events::of(&[Event::Unknown]), Events::ALL);
    }
}
