/* sender.c - see sender.h */
#include "link/sender.h"

bool sender_write(struct sender *sender, const void *data, size_t len)
{
	size_t sent = 0;

	if (sender->eof)
		return true;
	if (sender->chan && !sender->hold && !sender->left.len)
		sent = chan_send(sender->chan, data, len);
	if (sent < len)
		buf_add(&sender->left, (const uint8_t *)data + sent, len - sent);
	return sent == len;
}

static void send_eof_when_due(struct sender *sender)
{
	if (!sender->eof || sender->eof_sent || sender->hold || sender->left.len || !sender->chan)
		return;
	sender->eof_sent = true;
	chan_send_end(sender->chan);
}

void sender_write_end(struct sender *sender)
{
	sender->eof = true;
	send_eof_when_due(sender);
}

bool sender_flush(struct sender *sender)
{
	size_t sent;

	if (!sender->chan || sender->hold)
		return false;
	while (sender->left.len &&
		(sent = chan_send(sender->chan, buf_head(&sender->left), sender->left.len)))
		buf_eat(&sender->left, sent);
	if (sender->left.len)
		return false;
	buf_done(&sender->left);
	send_eof_when_due(sender);
	return true;
}

void sender_done(struct sender *sender)
{
	if (sender->chan)
		chan_close(sender->chan);
	buf_done(&sender->left);
	*sender = (struct sender){ 0 };
}
