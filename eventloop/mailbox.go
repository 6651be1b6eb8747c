package eventloop

// Mailbox is the mailbox of an actor that lives on a loop.
type Mailbox struct{}
