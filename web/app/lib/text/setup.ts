/** The first administrator. */

export const setup = {
  title: 'First administrator',
  intro: 'This name and password sign in from now on. The link works once.',
  name: 'Name',
  nameHelp: 'Small letters, digits and . _ -, beginning with a letter.',
  password: 'Password',
  passwordHelp: (least: number) => `At least ${least} characters; a few words make a good one.`,
  submit: 'Create and sign in',
  deadTitle: 'This link is used up',
  dead: 'The code is unknown, used or too old. For a new link: restart tidegate; it prints one while no administrator exists.',
  exists:
    'An administrator exists already, or the link is too old. For a new link: restart tidegate; it prints one while no administrator exists.',
  toSignIn: 'Go to sign-in',
};
