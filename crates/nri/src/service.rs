//! The plugin's service: passes requests to the plugin and encodes its answers.
//!
//! The service answers an unknown method with a status; a runtime then falls back to a known one. A message that cannot
//! be decoded ends the session, because a status would make the runtime refuse the pod.

use crate::api::{
    ConfigureResponse, Container, Empty, PodSandbox, SynchronizeRequest, SynchronizeResponse,
};
use crate::error::Error;
use crate::plugin::{Plugin, Refusal};
use crate::ttrpc::{Request, Response, Status, decode};

/// The service that a plugin offers.
const PLUGIN: &str = "nri.pkg.api.v1alpha1.Plugin";

/// The most pods and containers that are accepted. kubelet runs 110 pods unless it is configured otherwise.
pub const MOST_LISTED: usize = 16_384;

/// Answers the runtime's requests.
#[derive(Debug, Default)]
pub(crate) struct Service {
    /// The pods listed so far, where the runtime sends the list in several messages.
    pods: Vec<PodSandbox>,
    containers: Vec<Container>,
}

impl Service {
    /// Calls the plugin's method for a request and returns the response.
    pub(crate) fn answer(
        &mut self,
        request: &Request,
        plugin: &mut impl Plugin,
    ) -> Result<Response, Error> {
        let payload = &request.payload;
        if request.service != PLUGIN {
            return Ok(unknown(&request.service, &request.method));
        }
        Ok(match request.method.as_str() {
            "Configure" => {
                let events = plugin.configure(decode("Configure", payload)?);
                of(events.map(|events| ConfigureResponse {
                    events: events.bits(),
                }))
            }
            "Synchronize" => of(self.synchronize(payload, plugin)?),
            "CreateContainer" => done(plugin.create_container(decode("CreateContainer", payload)?)),
            "UpdateContainer" => done(plugin.update_container(decode("UpdateContainer", payload)?)),
            "StopContainer" => done(plugin.stop_container(decode("StopContainer", payload)?)),
            "StateChange" => done(plugin.state_changed(decode("StateChange", payload)?)),
            "Shutdown" => {
                plugin.shut_down();
                done(Ok(()))
            }
            method => unknown(PLUGIN, method),
        })
    }

    fn synchronize(
        &mut self,
        payload: &[u8],
        plugin: &mut impl Plugin,
    ) -> Result<Result<SynchronizeResponse, Refusal>, Error> {
        let before = self.pods.len() + self.containers.len();
        let listed = before + entries(payload);
        if listed > MOST_LISTED {
            return Err(Error::TooManyListed {
                listed,
                most: MOST_LISTED,
            });
        }
        let part: SynchronizeRequest = decode("Synchronize", payload)?;
        self.pods.extend(part.pods);
        self.containers.extend(part.containers);
        if part.more {
            return Ok(Ok(SynchronizeResponse { more: true }));
        }
        let pods = std::mem::take(&mut self.pods);
        let taken_in = plugin.synchronize(pods, std::mem::take(&mut self.containers));
        Ok(taken_in.map(|()| SynchronizeResponse { more: false }))
    }
}

/// Counts the pods and containers of a list before it is decoded: an empty entry takes 2 bytes of a message and some
/// hundred bytes of memory. In a malformed list it counts the entries before the defect.
fn entries(mut payload: &[u8]) -> usize {
    let mut entries = 0;
    while let Ok((field, wire)) = prost::encoding::decode_key(&mut payload) {
        let context = prost::encoding::DecodeContext::default();
        if prost::encoding::skip_field(wire, field, &mut payload, context).is_err() {
            break;
        }
        entries += usize::from(field == 1 || field == 2);
    }
    entries
}

fn of(answer: Result<impl prost::Message, Refusal>) -> Response {
    match answer {
        Ok(answer) => Response {
            status: None,
            payload: answer.encode_to_vec(),
        },
        Err(Refusal(why)) => refused(Status::UNKNOWN, why),
    }
}

/// Answers with an empty message, or with the refusal.
fn done(answer: Result<(), Refusal>) -> Response {
    of(answer.map(|()| Empty {}))
}

fn unknown(service: &str, method: &str) -> Response {
    let shortened = |name: &str| name.chars().take(80).collect::<String>();
    let (service, method) = (shortened(service), shortened(method));
    refused(
        Status::UNIMPLEMENTED,
        format!("no method {service}/{method}"),
    )
}

fn refused(code: i32, message: String) -> Response {
    Response {
        status: Some(Status { code, message }),
        payload: Vec::new(),
    }
}
