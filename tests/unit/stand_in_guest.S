/* stand_in_guest.S - the smallest guest: started by QEMU as a kernel (PVH), speaks by the serial port
 *
 * What it does, the first letter of its command line says:
 *
 *   c   counts for ever in memory and prints a dot now and then
 *   r   resets the machine        p   after a while says that its kernel panicked, then as r
 *   s   shuts the machine down (the register that ACPI of QEMU's microvm names for it)
 */
	.section .note.Xen, "a", @note
	.long 4, 4, 18 /* XEN_ELFNOTE_PHYS32_ENTRY */
	.asciz "Xen"
	.long start

	.text
	.code32
	.globl start
start:
	movl 24(%ebx), %esi /* hvm_start_info.cmdline_paddr */
	movb (%esi), %bl
	movl $hello, %esi
	call print
	cmpb $'r', %bl
	je reset
	cmpb $'p', %bl
	je panic
	cmpb $'s', %bl
	je shutdown
count:
	movl $2000000, %ecx
again:
	incl 0x200000
	decl %ecx
	jnz again
	movw $0x3f8, %dx
	movb $'.', %al
	outb %al, %dx
	jmp count

panic:
	movl $20000000, %ecx
soon:
	decl %ecx
	jnz soon
	movl $words, %esi
	call print
reset:
	lidt nothing
	int3

shutdown:
	movl $0xfea00200, %esi /* GED's registers: sleep control; S5 and go */
	movb $0x34, (%esi)
	jmp count

print:
	movw $0x3f8, %dx
next:
	lodsb
	testb %al, %al
	jz printed
	outb %al, %dx
	jmp next
printed:
	ret

hello:	.asciz "hello\n"
words:	.asciz "Kernel panic - not syncing: as told\n"
nothing: .word 0
	.long 0
