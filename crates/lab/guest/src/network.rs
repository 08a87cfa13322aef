//! Brings up the loopback interface, so that programs in the guest can talk to each other by TCP.
//!
//! One netlink message, RTM_NEWLINK for interface 1 with IFF_UP (rtnetlink(7)).

use std::io;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

const RTM_NEWLINK: u16 = 16;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLMSG_ERROR: u16 = 2;
const LOOPBACK_INDEX: i32 = 1;
const IFF_UP: u32 = 1;

/// The message: `struct nlmsghdr`, then `struct ifinfomsg`.
fn bring_up_message() -> Vec<u8> {
    let mut message = Vec::new();
    message.extend(32_u32.to_ne_bytes()); // length of the whole message
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend((NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    message.extend(1_u32.to_ne_bytes()); // sequence number
    message.extend(0_u32.to_ne_bytes()); // port: the kernel
    message.extend([0, 0]); // any family, padding
    message.extend(0_u16.to_ne_bytes()); // device type: unchanged
    message.extend(LOOPBACK_INDEX.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes()); // flags
    message.extend(IFF_UP.to_ne_bytes()); // which flags change
    message
}

/// Reads the kernel's answer: `struct nlmsghdr`, then a negative errno, 0 for done.
fn answer(message: &[u8]) -> io::Result<()> {
    let kind = message
        .get(4..6)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u16::from_ne_bytes);
    let code = message
        .get(16..20)
        .and_then(|bytes| bytes.try_into().ok())
        .map(i32::from_ne_bytes);
    match (kind, code) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(code)) => Err(io::Error::from_raw_os_error(-code)),
        _ => Err(io::Error::other(
            "the kernel's answer is no acknowledgement",
        )),
    }
}

/// Sets the loopback interface up.
pub fn bring_up_loopback() -> io::Result<()> {
    // No protocol is 0, which for netlink is NETLINK_ROUTE.
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    send(&socket, &bring_up_message(), SendFlags::empty())?;
    let mut buffer = [0; 512];
    let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
    answer(&buffer[..length.min(buffer.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_has_the_length_it_says() {
        assert_eq!(bring_up_message().len(), 32);
    }

    #[test]
    fn a_refusal_is_told_from_an_acknowledgement() {
        let reply = |code: i32| {
            let mut message = vec![36, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
            message.extend(code.to_ne_bytes());
            message
        };
        assert!(answer(&reply(0)).is_ok());
        assert_eq!(
            answer(&reply(-1)).map_err(|e| e.raw_os_error()),
            Err(Some(1))
        );
        assert!(answer(&[0; 8]).is_err());
    }
}
